------------------------------ MODULE Takeover ------------------------------
(***************************************************************************)
(* An idempotent producer, and leaders that come and go: every batch once, *)
(* in order, acknowledged only if it stays.                                *)
(*                                                                         *)
(* The log is what ledgers hold of a partition: a prefix is confirmed, and *)
(* a takeover keeps the confirmed prefix and any part of what follows it   *)
(* without a gap (LogRolling.tla and LedgerCrash.tla are about that). What *)
(* this model adds is the producer's side of it: sequence numbers, several *)
(* batches on their way, answers that get lost, requests that arrive late, *)
(* a second time, or at a leader that is none any more.                    *)
(*                                                                         *)
(* Rules by their names in broker/TAKEOVER.md. Each constant below         *)
(* switches one off; TLC must then find a violation.                       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    BatchesMax,     \* batches the producer has, with sequences 1, 2, ...
    WindowMax,      \* batches on their way at a time
    TakeoversMax,
    RetriesMax,     \* times each batch may be sent again
    Fold,           \* FOLD: a leader knows the sequences of all of the log
    FoldUnconfirmed,\* FOLD: also of batches that survived without an acknowledgement
    AcceptedOrder,  \* ACCEPTED-ORDER: a batch is known from its acceptance on
    Parked,         \* PARKED: a duplicate is answered together with its original
    SequenceCheck,  \* a batch whose predecessor is missing is refused
    Unknown         \* UNKNOWN: a failed append is never called a failure

Batches == 1..BatchesMax
Epochs == 1..(TakeoversMax + 1)

VARIABLES
    log,        \* batches in the order of their offsets
    confirmed,  \* length of its confirmed prefix
    epoch,      \* of the present leader; earlier ones are zombies
    known,      \* the present leader: the highest sequence it takes for stored
    requests,   \* on their way to a leader: <<batch, epoch of the leader>>
    waiting,    \* accepted or parked at the present leader, not answered yet
    acked,      \* batches whose producer was told success
    failed,     \* batches whose producer was told a definite failure
    tries       \* per batch

vars == <<log, confirmed, epoch, known, requests, waiting, acked, failed, tries>>

Init ==
    /\ log = <<>>
    /\ confirmed = 0
    /\ epoch = 1
    /\ known = 0
    /\ requests = {}
    /\ waiting = {}
    /\ acked = {}
    /\ failed = {}
    /\ tries = [b \in Batches |-> 0]

Done(b) == b \in acked \/ b \in failed
Count(b) == Cardinality({i \in 1..Len(log) : log[i] = b})
MaxOf(S) == IF S = {} THEN 0 ELSE CHOOSE m \in S : \A n \in S : n <= m

---------------------------------------------------------------------------
(* The producer: at most WindowMax batches that it does not know the fate  *)
(* of; the first time in order, later as it likes, to any leader it        *)
(* believes in.                                                            *)

Send(b, e) ==
    /\ ~Done(b)
    /\ tries[b] <= RetriesMax
    /\ \A earlier \in 1..(b - 1) : tries[earlier] > 0
    /\ Cardinality({o \in 1..(b - 1) : ~Done(o)}) < WindowMax
    /\ e <= epoch
    /\ requests' = requests \cup {<<b, e>>}
    /\ tries' = [tries EXCEPT ![b] = @ + 1]
    /\ UNCHANGED <<log, confirmed, epoch, known, waiting, acked, failed>>

---------------------------------------------------------------------------
(* The leader. A request may arrive again: it stays under way, so that     *)
(* every delivery is one that may be repeated.                             *)

\* New: offset and sequence in one go.
Accept(r) ==
    /\ r[2] = epoch
    /\ r[1] > known
    /\ SequenceCheck => r[1] = known + 1
    /\ Len(log) < BatchesMax + 2
    /\ log' = Append(log, r[1])
    /\ known' = IF AcceptedOrder THEN r[1] ELSE known
    /\ waiting' = waiting \cup {r[1]}
    /\ UNCHANGED <<confirmed, epoch, requests, acked, failed, tries>>

\* A duplicate: success, but not before the original has its quorum.
Duplicate(r) ==
    /\ r[2] = epoch
    /\ r[1] <= known
    /\ IF Parked /\ \E i \in (confirmed + 1)..Len(log) : log[i] = r[1]
       THEN waiting' = waiting \cup {r[1]} /\ UNCHANGED acked
       ELSE acked' = acked \cup {r[1]} /\ UNCHANGED waiting
    /\ requests' = requests \ {r}
    /\ UNCHANGED <<log, confirmed, epoch, known, failed, tries>>

\* The next batch has its quorum. Its answer may get lost, as may any.
Confirm(answered) ==
    /\ confirmed < Len(log)
    /\ confirmed' = confirmed + 1
    /\ LET b == log[confirmed + 1] IN
        /\ known' = IF b > known THEN b ELSE known
        /\ acked' = IF answered /\ b \in waiting THEN acked \cup {b} ELSE acked
        /\ waiting' = waiting \ {b}
    /\ UNCHANGED <<log, epoch, requests, failed, tries>>

\* A leader that is none any more refuses; the producer will try elsewhere.
Refuse(r) ==
    /\ r[2] < epoch
    /\ requests' = requests \ {r}
    /\ UNCHANGED <<log, confirmed, epoch, known, waiting, acked, failed, tries>>

---------------------------------------------------------------------------
(* A takeover, after a crash or of a zombie: everything confirmed stays,   *)
(* of the rest any prefix. What the old leader had not answered it never   *)
(* answers with success; whoever waits hears "unknown" or nothing.         *)

TakeOver ==
    /\ epoch <= TakeoversMax
    /\ epoch' = epoch + 1
    /\ \E kept \in confirmed..Len(log) :
        /\ log' = SubSeq(log, 1, kept)
        /\ confirmed' = kept
        /\ known' = IF ~Fold THEN 0
                    ELSE MaxOf({log[i] : i \in 1..(IF FoldUnconfirmed THEN kept ELSE confirmed)})
    /\ failed' = IF Unknown THEN failed ELSE failed \cup waiting
    /\ waiting' = {}
    /\ UNCHANGED <<requests, acked, tries>>

Next ==
    \/ \E b \in Batches : \E e \in Epochs : Send(b, e)
    \/ \E r \in requests : Accept(r) \/ Duplicate(r) \/ Refuse(r)
    \/ Confirm(TRUE) \/ Confirm(FALSE)
    \/ TakeOver

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
TypeOK == confirmed <= Len(log) /\ epoch \in Epochs

\* T1: acknowledged is confirmed.
AcknowledgedIsInTheLog == \A b \in acked : \E i \in 1..confirmed : log[i] = b

\* T3: no batch twice.
NoDuplicate == \A b \in Batches : Count(b) <= 1

\* T4: in the order of sending, without a gap.
InOrder == \A i \in 1..Len(log) : log[i] = i

\* T6: what was called a failure is not in the log.
FailedIsNotInTheLog == \A b \in failed : Count(b) = 0
=============================================================================
