------------------------------ MODULE ShareState ------------------------------
(***************************************************************************)
(* What a share group has of one partition (KIP-932): records that are     *)
(* lent to members, acknowledged, released, rejected, taken back when a    *)
(* lock has passed; a leader whose memory is the fold of its log, and      *)
(* leaders that take the log over.                                         *)
(*                                                                         *)
(* Every change of a record that has to stay is an entry of the partition's *)
(* own log: durable later, or never if another leader fences the log       *)
(* before. A snapshot is an entry, too; whoever takes over reads the last  *)
(* one and what follows it. Locks, and who holds what, are memory only.    *)
(*                                                                         *)
(* Dead letters: what would be archived because it was rejected, or lent   *)
(* too often, is archiving instead until its dead letter is in another     *)
(* topic. That topic is durable at once here; the leader learns of it      *)
(* later, or never if another one takes over in between.                   *)
(*                                                                         *)
(* Order by key: a record is lent when all earlier ones of its key are     *)
(* settled, or archiving.                                                  *)
(*                                                                         *)
(* Taken for granted: one leader can write at a time (Takeover, LogRolling).*)
(* Each constant from AnswerLate on switches a rule off; TLC must then     *)
(* find a violation.                                                       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Members,
    RecordsMax,
    Limit,          \* deliveries of a record
    UnwrittenMax,   \* entries on their way at once
    FailoversMax,
    SnapshotsMax,
    Nobody,
    Letters,        \* whether there are dead letters
    KeysMax,        \* how many keys the records have; 0: none, and no order
    AnswerLate,     \* ANSWER-LATE: the answer comes when the change is durable
    ReleaseLate,    \* RELEASE-LATE: a record is lent again when its release is durable
    OwnOnly,        \* OWN-ONLY: nobody settles what he does not hold
    FreeOnly,       \* FREE-ONLY: what somebody holds is not lent
    LockEnds,       \* LOCK-ENDS: what is settled has no lock that could pass
    LimitAlways,    \* LIMIT-ALWAYS: the limit counts for locks that pass, too
    CountKept,      \* COUNT-KEPT: counts are in the log
    StartWaits,     \* START-WAITS: the start passes only what is settled
    SnapshotWhole,  \* SNAPSHOT-WHOLE: a snapshot has all of it
    ArchivingFirst, \* ARCHIVING-FIRST: a dead letter is written when ARCHIVING is durable
    LetterNumbered, \* LETTER-NUMBERED: what is sent again is known by its number
    LetterFirst,    \* LETTER-FIRST: a record is archived when its dead letter is durable
    ArchivingStays, \* ARCHIVING-STAYS: whoever takes over goes on with what is archiving
    OneOfKey,       \* ONE-OF-KEY: no record is lent before the earlier ones of its key
    KeyLate         \* KEY-LATE: the next of a key is lent when the end of the last is durable

Records == 1..RecordsMax

VARIABLES
    memory,     \* of the leader: of each record its state, how often it was lent, who holds it
    start,      \* of the leader: the first record that may not be settled
    log,        \* what whoever takes over reads: of each record state and count, and the start
    entries,    \* on their way into the log
    answered,   \* records whose members were told that they are settled
    lent,       \* how often each record was lent in truth
    letters,    \* how many dead letters each record has
    left,       \* how many faults and snapshots may come
    wrong       \* what an action has shown to be wrong

vars == <<memory, start, log, entries, answered, lent, letters, left, wrong>>

Settled == {"acknowledged", "archived"}

\* "dying": archiving, and that is not durable; "sent": its dead letter is in its topic.
Archiving == {"dying", "archiving", "sent"}

SameKey(q, r) == KeysMax > 0 /\ q % KeysMax = r % KeysMax

New == [state |-> "available", count |-> 0, holder |-> Nobody]
Unread == [r \in Records |-> [state |-> "available", count |-> 0]]

Init ==
    /\ memory = [r \in Records |-> New]
    /\ start = 1
    /\ log = [records |-> Unread, start |-> 1]
    /\ entries = <<>>
    /\ answered = {}
    /\ lent = [r \in Records |-> 0]
    /\ letters = [r \in Records |-> 0]
    /\ left = [failovers |-> FailoversMax, snapshots |-> SnapshotsMax]
    /\ wrong = {}

\* What the log says of a record that somebody holds, or whose release is on its way.
Stored(one) ==
    [state |-> IF one.state \in Settled THEN one.state
               ELSE IF one.state \in Archiving
               THEN IF ArchivingStays THEN "archiving" ELSE "archived"
               ELSE "available",
     count |-> IF CountKept THEN one.count ELSE 0]

RECURSIVE Passed(_, _)
Passed(m, s) ==
    IF s > RecordsMax THEN s
    ELSE IF m[s].state \in Settled \/ ~StartWaits THEN
         IF StartWaits THEN Passed(m, s + 1) ELSE s + 1
    ELSE s

---------------------------------------------------------------------------
(* The leader.                                                             *)

\* Whether an earlier record of the same key is in the way.
IsBehind(r) ==
    \E q \in Records : q < r /\ SameKey(q, r) /\
        IF KeyLate THEN log.records[q].state \notin Settled \cup {"archiving"}
        ELSE memory[q].state \notin Settled \cup Archiving

Lend(m, r) ==
    /\ r >= start
    /\ OneOfKey => ~IsBehind(r)
    /\ \/ memory[r].state = "available"
       \/ ~FreeOnly /\ memory[r].state = "acquired" /\ memory[r].holder # m
    /\ memory' = [memory EXCEPT ![r] = [state |-> "acquired", count |-> @.count + 1, holder |-> m]]
    /\ lent' = [lent EXCEPT ![r] = @ + 1]
    /\ wrong' = wrong
        \cup (IF r \in answered THEN {"lent although settled"} ELSE {})
        \cup (IF memory[r].state = "acquired" THEN {"lent to two"} ELSE {})
        \cup (IF letters[r] > 0 THEN {"lent although dead"} ELSE {})
        \cup (IF \E q \in Records : q # r /\ SameKey(q, r) /\ memory[q].state = "acquired"
              THEN {"two of a key"} ELSE {})
        \cup (IF \E q \in Records : q > r /\ SameKey(q, r) /\ lent[q] > 0
              THEN {"out of order"} ELSE {})
    /\ UNCHANGED <<start, log, entries, answered, letters, left>>

\* What becomes of a record, the entry that says so, and who waits for it to be durable.
Change(r, state, waits) ==
    LET one == [memory[r] EXCEPT !.state = state, !.holder = Nobody]
        new == [memory EXCEPT ![r] = one]
        passed == Passed(new, start) IN
    /\ memory' = new
    /\ start' = passed
    /\ entries' = Append(entries, [kind |-> "change", record |-> r, value |-> Stored(one),
                                   start |-> passed, waits |-> waits])

Dead == IF Letters THEN "dying" ELSE "archived"

Released(r, isLimited) ==
    IF isLimited /\ memory[r].count >= Limit THEN Dead
    ELSE IF ReleaseLate THEN "released" ELSE "available"

Settle(m, r, how) ==
    LET isOwn == memory[r].state = "acquired" /\ memory[r].holder = m
        isLent == memory[r].state = "acquired"
        state == IF how = "accept" THEN "acknowledged"
                 ELSE IF how = "reject" THEN Dead ELSE Released(r, TRUE)
        isFinal == state \in Settled \cup {"dying"} IN
    /\ Len(entries) < UnwrittenMax
    /\ isOwn \/ (~OwnOnly /\ isLent)
    /\ Change(r, state, AnswerLate /\ isFinal)
    /\ answered' = IF ~AnswerLate /\ isFinal THEN answered \cup {r} ELSE answered
    /\ wrong' = IF isOwn THEN wrong ELSE wrong \cup {"settled by another"}
    /\ UNCHANGED <<log, lent, letters, left>>

\* A lock has passed, or its holder is gone.
TakeBack(r) ==
    /\ Len(entries) < UnwrittenMax
    /\ \/ memory[r].state = "acquired"
       \/ ~LockEnds /\ memory[r].state = "acknowledged"
    /\ Change(r, Released(r, LimitAlways), FALSE)
    /\ start' >= start
    /\ UNCHANGED <<log, answered, lent, letters, left, wrong>>

\* The dead letter is in its topic; whoever does not hear of that sends it again.
WriteLetter(r) ==
    /\ \/ memory[r].state = "archiving"
       \/ (~ArchivingFirst /\ memory[r].state = "dying")
       \/ (~LetterNumbered /\ memory[r].state = "sent" /\ letters[r] < 3)
    /\ letters' = [letters EXCEPT ![r] = @ + 1]
    /\ memory' = [memory EXCEPT ![r].state = "sent"]
    /\ UNCHANGED <<start, log, entries, answered, lent, left, wrong>>

Archive(r) ==
    /\ Len(entries) < UnwrittenMax
    /\ \/ memory[r].state = "sent"
       \/ (~LetterFirst /\ memory[r].state = "archiving")
    /\ Change(r, "archived", FALSE)
    /\ UNCHANGED <<log, answered, lent, letters, left, wrong>>

Snapshot ==
    /\ left.snapshots > 0
    /\ Len(entries) < UnwrittenMax
    /\ left' = [left EXCEPT !.snapshots = @ - 1]
    /\ entries' = Append(entries, [kind |-> "snapshot",
            records |-> IF SnapshotWhole THEN [r \in Records |-> Stored(memory[r])] ELSE Unread,
            start |-> IF SnapshotWhole THEN start ELSE 1])
    /\ UNCHANGED <<memory, start, log, answered, lent, letters, wrong>>

---------------------------------------------------------------------------
(* The log.                                                                *)

Folded(l, e) ==
    IF e.kind = "snapshot" THEN [records |-> e.records, start |-> e.start]
    ELSE [records |-> [l.records EXCEPT ![e.record] = e.value], start |-> e.start]

Durable ==
    /\ entries # <<>>
    /\ LET e == Head(entries) IN
        /\ log' = Folded(log, e)
        /\ IF e.kind = "change"
           THEN /\ answered' = IF e.waits THEN answered \cup {e.record} ELSE answered
                /\ memory' = IF memory[e.record].state = "released"
                             THEN [memory EXCEPT ![e.record].state = "available"]
                             ELSE IF memory[e.record].state = "dying"
                             THEN [memory EXCEPT ![e.record].state = "archiving"] ELSE memory
           ELSE UNCHANGED <<answered, memory>>
    /\ entries' = Tail(entries)
    /\ UNCHANGED <<start, lent, letters, left, wrong>>

RECURSIVE FoldedAll(_, _)
FoldedAll(l, es) == IF es = <<>> THEN l ELSE FoldedAll(Folded(l, Head(es)), Tail(es))

\* Another leader fences the log: all, some or nothing of what was on its way is in it.
TakeOver ==
    /\ left.failovers > 0
    /\ left' = [left EXCEPT !.failovers = @ - 1]
    /\ \E kept \in 0..Len(entries) :
        LET found == FoldedAll(log, SubSeq(entries, 1, kept)) IN
        /\ log' = found
        /\ start' = found.start
        /\ memory' = [r \in Records |-> [state |-> found.records[r].state,
                                         count |-> found.records[r].count, holder |-> Nobody]]
    /\ entries' = <<>>
    /\ UNCHANGED <<answered, lent, letters, wrong>>

Next ==
    \/ \E m \in Members, r \in Records :
        \/ Lend(m, r)
        \/ \E how \in {"accept", "reject", "release"} : Settle(m, r, how)
    \/ \E r \in Records : TakeBack(r) \/ WriteLetter(r) \/ Archive(r)
    \/ Snapshot \/ Durable \/ TakeOver

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Members)

---------------------------------------------------------------------------
(* What must hold.                                                         *)

TypeOK ==
    /\ start \in 1..(RecordsMax + 1)
    /\ Len(entries) <= UnwrittenMax
    /\ \A r \in Records : (memory[r].holder # Nobody) = (memory[r].state = "acquired")

\* S2, S5, and nobody settles what another one holds.
NothingWrong == wrong = {}

\* S3: what was answered is in the log.
AnsweredStays == \A r \in answered : log.records[r].state \in Settled \cup {"archiving"}

\* S3: nothing is passed over, by the leader or by whoever takes over.
StartIsRight ==
    /\ \A r \in Records : r < start => memory[r].state \in Settled
    /\ \A r \in Records : r < log.start => log.records[r].state \in Settled

\* S10: what is archived has a dead letter, one unless a leader was replaced in between.
LettersAreThere == Letters => \A r \in Records :
    log.records[r].state = "archived" => letters[r] > 0
LettersAreOnce == \A r \in Records : letters[r] <= 1 + (FailoversMax - left.failovers)

\* S4
CountBounded == \A r \in Records : lent[r] <= Limit + (FailoversMax - left.failovers)
=============================================================================
