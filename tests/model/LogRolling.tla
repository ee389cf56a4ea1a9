----------------------------- MODULE LogRolling -----------------------------
(***************************************************************************)
(* A partition as a chain of ledgers: takeover and rolling.                *)
(*                                                                         *)
(* What upstream's model of a ledger chain leaves out, and what this one   *)
(* is about: a leader lists its next ledger while it still writes the      *)
(* present one, so two ledgers are open together; whoever takes over       *)
(* recovers the last two; and the answer to a compare-and-set may get lost *)
(* while the set itself happens at once, later, or never. A takeover's set *)
(* is one transaction: it closes the last ledger where this broker found   *)
(* its end, creates the next one and lists it. Meanwhile others (repair)   *)
(* may recover and close the same ledger. And bookies may all be full: a   *)
(* takeover without a ledger of its own closes the last one, raises the    *)
(* epoch, and its broker answers reads until it takes over once more.      *)
(*                                                                         *)
(* A ledger is taken for granted here (LedgerCrash.tla is about that): it  *)
(* holds entries in the order they were sent, a prefix of them is          *)
(* confirmed, nothing is confirmed once it is fenced, and recovery ends it *)
(* anywhere from the last confirmed to the last sent entry.                *)
(*                                                                         *)
(* Rules by their names in broker/TAKEOVER.md. Each constant below         *)
(* switches one off; TLC must then find a violation.                       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,        \* who may lead
    LedgersMax,     \* ledgers ever created
    EntriesMax,     \* entries ever sent
    CrashesMax,     \* brokers that lose their memory, and ledgers that others close
    TriesMax,       \* sets of the same change
    LastTwo,        \* LAST-TWO: recover the last two ledgers, not just one
    CommitFirst,    \* COMMIT-FIRST: serve after the list names the ledger
    Drain,          \* DRAIN: switch when the previous ledger is confirmed
    OneRoll,        \* ONE-ROLL: the previous ledger is closed before the next roll
    OwnId,          \* OWN-ID: settle an unknown set by the own ledger's id
    GiveUp,         \* OWN-ID: without an own ledger, an unknown set is given up
    AskAgain,       \* OWN-ID: a conflict after a lost answer proves nothing; read back
    Unlisted,       \* UNLISTED: delete the own ledger only if nobody lists it
    CloseWithCommit,\* CLOSE-WITH-COMMIT: the ledger is closed in the transaction that seals it
    CloseUnchanged, \* CLOSE-WITH-COMMIT: only if nobody closed it since
    Cas,            \* CAS: a set names the version that it began from
    Fencing         \* recovery fences before it decides where a ledger ends

Ledgers == 1..LedgersMax
Nobody == 0
None == 0

VARIABLES
    list,       \* the segment list: ledger ids, oldest first
    version,    \* of the list
    ledger,     \* per ledger: what metadata and bookies know of it
    broker,     \* per broker: its memory
    sets,       \* compare-and-sets under way: they happen, or never
    acks,       \* <<entry, epoch>> in the order of acknowledgement
    entries,    \* entries sent so far
    created,    \* ledgers created so far
    crashes

vars == <<list, version, ledger, broker, sets, acks, entries, created, crashes>>

\* epoch: version of the list that made its owner the leader; it orders leaders.
\* sealed: the end that the list names, plus one; closed: the first end it was closed at, plus one.
FreshLedger == [state |-> "none", fenced |-> FALSE, sent |-> <<>>, confirmed |-> 0, end |-> 0,
                sealed |-> 0, closed |-> 0]
FreshBroker == [phase |-> "idle", list |-> <<>>, version |-> 0, todo |-> <<>>,
                writing |-> None, next |-> None, previous |-> None, epoch |-> 0, tries |-> 0, end |-> 0]

Init ==
    /\ list = <<>>
    /\ version = 0
    /\ ledger = [l \in Ledgers |-> FreshLedger]
    /\ broker = [b \in Brokers |-> FreshBroker]
    /\ sets = {}
    /\ acks = <<>>
    /\ entries = 0
    /\ created = 0
    /\ crashes = 0

Last(s) == s[Len(s)]
Listed(l) == \E i \in 1..Len(list) : list[i] = l
\* A set begun from an earlier version can never happen.
Put(s) == sets' = IF Cas /\ s.version # version THEN sets ELSE sets \cup {s}
Ended(l, end) == [l EXCEPT !.state = "closed", !.end = end,
                           !.closed = IF @ = 0 THEN end + 1 ELSE @]
Delete(l) == ledger' = [ledger EXCEPT ![l] = [FreshLedger EXCEPT !.state = "deleted"]]
LastOf(s, n) == IF Len(s) <= n THEN s ELSE SubSeq(s, Len(s) - n + 1, Len(s))

---------------------------------------------------------------------------
(* Takeover                                                                *)

\* 1, 2. Read the list with its version.
Read(b) ==
    /\ broker[b].phase = "idle"
    /\ broker' = [broker EXCEPT ![b] = [FreshBroker EXCEPT
            !.phase = "recovering", !.list = list, !.version = version,
            !.todo = LastOf(list, IF LastTwo THEN 2 ELSE 1)]]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

\* 3a. The last one may be marked long before it is fenced: its writer cannot close it any more.
Mark(b) ==
    /\ broker[b].phase = "recovering"
    /\ Len(broker[b].todo) = 1
    /\ LET l == Head(broker[b].todo) IN
        /\ ledger[l].state = "open"
        /\ ledger' = [ledger EXCEPT ![l].state = "recovery"]
    /\ UNCHANGED <<list, version, broker, sets, acks, entries, created, crashes>>

\* 3b. Fence the next ledger to recover: nothing is confirmed in it from now on.
Fence(b) ==
    /\ broker[b].phase = "recovering"
    /\ broker[b].todo # <<>>
    /\ LET l == Head(broker[b].todo) IN
        /\ ledger[l].state \in {"open", "recovery"}
        /\ ~ledger[l].fenced
        /\ ledger' = [ledger EXCEPT ![l].state = "recovery", ![l].fenced = Fencing]
    /\ UNCHANGED <<list, version, broker, sets, acks, entries, created, crashes>>

\* 3c. See where it ends: what was confirmed stays, of the rest any prefix may.
Measure(b) ==
    /\ broker[b].phase = "recovering"
    /\ broker[b].todo # <<>>
    /\ LET l == Head(broker[b].todo) IN
        /\ ledger[l].state = "recovery"
        /\ Fencing => ledger[l].fenced
        /\ \E end \in ledger[l].confirmed..Len(ledger[l].sent) :
            broker' = [broker EXCEPT ![b].phase = "measured", ![b].end = end]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

\* 3d. The older one: end it there, unless somebody did. The last one: only if somebody did.
Close(b) ==
    /\ broker[b].todo # <<>>
    /\ LET l == Head(broker[b].todo) IN
        \/ /\ broker[b].phase \in {"recovering", "measured"}
           /\ ledger[l].state = "closed"
           /\ UNCHANGED ledger
        \/ /\ broker[b].phase = "measured"
           /\ Len(broker[b].todo) = 2
           /\ ledger[l].state = "recovery"
           /\ ledger' = [ledger EXCEPT ![l] = Ended(@, broker[b].end)]
    /\ broker' = [broker EXCEPT ![b].phase = "recovering", ![b].todo = Tail(@), ![b].end = 0]
    /\ UNCHANGED <<list, version, sets, acks, entries, created, crashes>>

\* 5, 6. Plan a ledger, send the set that closes the last one, creates this one and lists it.
Commit(b) ==
    /\ \/ broker[b].phase = "recovering" /\ broker[b].todo = <<>>
       \/ broker[b].phase = "measured" /\ Len(broker[b].todo) = 1
    /\ created < LedgersMax
    /\ created' = created + 1
    /\ Put([by |-> b, try |-> 1, version |-> broker[b].version, takeover |-> TRUE,
            closes |-> broker[b].todo, end |-> broker[b].end, new |-> created + 1,
            list |-> Append(broker[b].list, created + 1)])
    /\ broker' = [broker EXCEPT ![b].phase = IF CommitFirst THEN "committing" ELSE "leading",
                                ![b].writing = created + 1,
                                ![b].tries = 1,
                                ![b].epoch = broker[b].version + 1]
    /\ UNCHANGED <<list, version, ledger, acks, entries, crashes>>

\* 5, 6. Bookies are full: the set closes the last one and lists nothing. Its number is no ledger's.
CommitReadOnly(b) ==
    /\ \/ broker[b].phase = "recovering" /\ broker[b].todo = <<>>
       \/ broker[b].phase = "measured" /\ Len(broker[b].todo) = 1
    /\ crashes < CrashesMax
    /\ crashes' = crashes + 1
    /\ LET own == LedgersMax + crashes + 1 IN
        /\ Put([by |-> b, try |-> 1, version |-> broker[b].version, takeover |-> TRUE,
                closes |-> broker[b].todo, end |-> broker[b].end, new |-> own,
                list |-> broker[b].list])
        /\ broker' = [broker EXCEPT ![b].phase = "committing", ![b].writing = own,
                                    ![b].tries = 1, ![b].epoch = broker[b].version + 1]
    /\ UNCHANGED <<list, version, ledger, acks, entries, created>>

\* Somebody else, who wants nothing of the list, recovers a listed ledger.
Repair(l) ==
    /\ crashes < CrashesMax
    /\ Listed(l)
    /\ ledger[l].state \in {"open", "recovery"}
    /\ crashes' = crashes + 1
    /\ \E end \in ledger[l].confirmed..Len(ledger[l].sent) :
        ledger' = [ledger EXCEPT ![l] = [Ended(@, end) EXCEPT !.fenced = TRUE]]
    /\ UNCHANGED <<list, version, broker, sets, acks, entries, created>>

---------------------------------------------------------------------------
(* The metadata store: a set happens or never does, and its answer arrives *)
(* or does not. A broker without an answer may give up waiting at any time.*)

Waiting(b) == broker[b].phase \in {"committing", "rolling"}

Own(b) == IF broker[b].phase = "rolling" THEN broker[b].next ELSE broker[b].writing

IsLedger(l) == l <= LedgersMax

\* Whether the ledgers are as a takeover's transaction expects them.
Fits(s) == /\ s.takeover /\ IsLedger(s.new) => ledger[s.new].state = "none"
           /\ CloseWithCommit /\ CloseUnchanged =>
                \A i \in 1..Len(s.closes) : ledger[s.closes[i]].state = "recovery"

Served(b) == IF broker[b].phase = "rolling" THEN "draining"
             ELSE IF IsLedger(Own(b)) THEN "leading" ELSE "reading"

\* The set reaches the store; `answered`: and the answer reaches the broker, if it still waits.
\* With compare-and-set all others from the same version are void from now on.
Apply(s, answered) ==
    LET b == s.by
        new == s.new
        heard == answered /\ Waiting(b) /\ Own(b) = new IN
    /\ Fits(s)
    /\ ledger' = IF ~s.takeover THEN ledger ELSE
        LET made == IF IsLedger(new) THEN [ledger EXCEPT ![new].state = "open"] ELSE ledger IN
        IF s.closes = <<>> THEN made ELSE
        [made EXCEPT ![s.closes[1]] =
            [IF CloseWithCommit THEN Ended(@, s.end) ELSE @
                EXCEPT !.sealed = IF IsLedger(new) THEN s.end + 1 ELSE @]]
    /\ list' = s.list
    /\ version' = version + 1
    /\ sets' = IF Cas THEN {} ELSE sets \ {s}
    /\ broker' = IF ~heard THEN broker
                 ELSE [broker EXCEPT ![b].phase = Served(b), ![b].list = s.list,
                                     ![b].todo = <<>>, ![b].end = 0,
                                     ![b].version = version + 1]
    /\ UNCHANGED <<acks, entries, created, crashes>>

\* The answer "another version" arrives. It says that this set did not happen; an earlier one of the
\* same change, whose answer was lost, may have. What a takeover planned is not there then.
Conflict(b) ==
    /\ Waiting(b)
    /\ Cas
    /\ version # broker[b].version
    /\ IF broker[b].tries = 1 THEN ~Listed(Own(b)) ELSE ~AskAgain
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ IF broker[b].phase = "rolling" THEN Delete(Own(b)) ELSE UNCHANGED ledger
    /\ UNCHANGED <<list, version, sets, acks, entries, created, crashes>>

\* Somebody closed the ledger that the set would close: it can never happen.
Refused(b) ==
    /\ broker[b].phase = "committing"
    /\ version = broker[b].version
    /\ broker[b].todo # <<>>
    /\ ledger[Head(broker[b].todo)].state # "recovery"
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

\* No answer came: read the list back, and judge by it.
Settle(b) ==
    /\ Waiting(b)
    /\ (IsLedger(Own(b)) \/ ~GiveUp)
    /\ LET me == broker[b]
           mine == IsLedger(Own(b))
           won == IF mine /\ OwnId THEN list # <<>> /\ Last(list) = Own(b) /\ version = me.version + 1
                           ELSE version = me.version + 1 IN
        \/ /\ won
           /\ broker' = [broker EXCEPT ![b].phase = Served(b), ![b].version = version,
                                       ![b].todo = <<>>, ![b].end = 0,
                                       ![b].list = IF mine THEN Append(@, Own(b)) ELSE @]
           /\ UNCHANGED <<sets, ledger>>
        \/ /\ ~won
           /\ version = me.version       \* not done, or not yet: set again
           /\ mine
           /\ me.tries < TriesMax
           /\ Put([by |-> b, try |-> me.tries + 1, version |-> me.version,
                   takeover |-> me.phase = "committing", closes |-> me.todo, end |-> me.end,
                   new |-> Own(b), list |-> Append(me.list, Own(b))])
           /\ broker' = [broker EXCEPT ![b].tries = @ + 1]
           /\ UNCHANGED ledger
        \/ /\ ~won
           /\ version # me.version       \* overtaken: what we sent can happen no more
           /\ broker' = [broker EXCEPT ![b] = FreshBroker]
           /\ IF me.phase = "committing" \/ (Unlisted /\ Listed(Own(b)))
              THEN UNCHANGED ledger ELSE Delete(Own(b))
           /\ UNCHANGED sets
    /\ UNCHANGED <<list, version, acks, entries, created, crashes>>

\* No answer came, and no ledger of the own would tell: begin anew. So does one that only reads,
\* as soon as bookies have room.
BeginAnew(b) ==
    /\ \/ broker[b].phase = "committing" /\ ~IsLedger(Own(b)) /\ GiveUp
       \/ broker[b].phase = "reading"
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

---------------------------------------------------------------------------
(* Leading                                                                 *)

Leads(b) == broker[b].phase \in {"leading", "rolling", "draining"}

Send(b) ==
    /\ broker[b].phase \in {"leading", "rolling"}     \* held back while draining
    /\ entries < EntriesMax
    /\ ledger[broker[b].writing].state \in {"none", "open", "recovery"}   \* bookies do not know
    /\ ~ledger[broker[b].writing].fenced
    /\ entries' = entries + 1
    /\ ledger' = [ledger EXCEPT ![broker[b].writing].sent =
                    Append(@, [entry |-> entries + 1, epoch |-> broker[b].epoch])]
    /\ UNCHANGED <<list, version, broker, sets, acks, created, crashes>>

\* An ack quorum has the next entry of a ledger; its leader acknowledges it.
Confirm(b, l) ==
    /\ Leads(b)
    /\ l \in {broker[b].writing, broker[b].previous} \ {None}
    /\ ~ledger[l].fenced
    /\ ledger[l].state # "closed"
    /\ ledger[l].confirmed < Len(ledger[l].sent)
    /\ LET n == ledger[l].confirmed + 1 IN
        /\ ledger' = [ledger EXCEPT ![l].confirmed = n]
        /\ acks' = Append(acks, ledger[l].sent[n])
    /\ UNCHANGED <<list, version, broker, sets, entries, created, crashes>>

\* Fenced: the leadership ends, what was not confirmed is unknown.
Resign(b) ==
    /\ Leads(b)
    /\ \E l \in {broker[b].writing, broker[b].previous} \ {None} : ledger[l].state \in {"recovery", "closed"}
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

Roll(b) ==
    /\ broker[b].phase = "leading"
    /\ OneRoll => broker[b].previous = None
    /\ created < LedgersMax
    /\ created' = created + 1
    /\ ledger' = [ledger EXCEPT ![created + 1].state = "open"]
    /\ Put([by |-> b, try |-> 1, version |-> broker[b].version, takeover |-> FALSE,
            closes |-> <<>>, end |-> 0, new |-> created + 1,
            list |-> Append(broker[b].list, created + 1)])
    /\ broker' = [broker EXCEPT ![b].phase = "rolling", ![b].next = created + 1,
                                ![b].tries = 1]
    /\ UNCHANGED <<list, version, acks, entries, crashes>>

Switch(b) ==
    /\ broker[b].phase = "draining"
    /\ Drain => ledger[broker[b].writing].confirmed = Len(ledger[broker[b].writing].sent)
    /\ broker' = [broker EXCEPT ![b].phase = "leading", ![b].previous = broker[b].writing,
                                ![b].writing = broker[b].next, ![b].next = None]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created, crashes>>

ClosePrevious(b) ==
    /\ Leads(b)
    /\ broker[b].previous # None
    /\ LET l == broker[b].previous IN
        /\ ledger[l].state = "open"
        /\ ledger[l].confirmed = Len(ledger[l].sent)
        /\ ledger' = [ledger EXCEPT ![l] = Ended(@, @.confirmed)]
    /\ broker' = [broker EXCEPT ![b].previous = None]
    /\ UNCHANGED <<list, version, sets, acks, entries, created, crashes>>

Crash(b) ==
    /\ crashes < CrashesMax
    /\ broker[b].phase # "idle"
    /\ crashes' = crashes + 1
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<list, version, ledger, sets, acks, entries, created>>

Next ==
    \/ \E b \in Brokers :
        \/ Read(b) \/ Mark(b) \/ Fence(b) \/ Measure(b) \/ Close(b) \/ Commit(b) \/ Settle(b)
        \/ Send(b) \/ Resign(b) \/ Roll(b) \/ Switch(b) \/ ClosePrevious(b) \/ Crash(b)
        \/ \E l \in Ledgers : Confirm(b, l)
        \/ Conflict(b) \/ Refused(b) \/ CommitReadOnly(b) \/ BeginAnew(b)
    \/ \E l \in Ledgers : Repair(l)
    \/ \E s \in sets : Apply(s, TRUE) \/ Apply(s, FALSE)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Brokers)

---------------------------------------------------------------------------
(* What must hold. C and Z are the numbers of the project's invariants.    *)

TypeOK ==
    /\ version \in Nat
    /\ \A l \in Ledgers : /\ ledger[l].state \in {"none", "open", "recovery", "closed", "deleted"}
                          /\ ledger[l].confirmed <= Len(ledger[l].sent)

\* C1, C3: only the last two of the list may be open.
OnlyTheLastTwoAreOpen ==
    \A i \in 1..Len(list) : i + 2 <= Len(list) => ledger[list[i]].state = "closed"

\* C7: a ledger that is listed is there.
ListedIsThere == \A i \in 1..Len(list) : ledger[list[i]].state \notin {"none", "deleted"}

\* K5: where a closed ledger ends never changes.
EndsStay == \A l \in Ledgers : ledger[l].state = "closed" => ledger[l].closed = ledger[l].end + 1

\* C3: where the list says that a ledger ends, there it is closed.
SealedIsClosed == \A l \in Ledgers : ledger[l].sealed > 0 =>
    (ledger[l].state = "closed" /\ ledger[l].sealed = ledger[l].end + 1)

\* C2: a ledger is listed once.
ListedOnce == \A i, j \in 1..Len(list) : list[i] = list[j] => i = j

\* What a reader may ever see of a ledger, in order.
Kept(l) == IF ledger[l].state = "closed" THEN SubSeq(ledger[l].sent, 1, ledger[l].end)
           ELSE SubSeq(ledger[l].sent, 1, ledger[l].confirmed)

Position(e) ==  \* <<place in the list, place in the ledger>> of a kept entry, or <<>>
    LET at == {<<i, n>> \in (1..Len(list)) \X (1..EntriesMax) :
                  n <= Len(Kept(list[i])) /\ Kept(list[i])[n].entry = e} IN
    IF at = {} THEN <<>> ELSE CHOOSE p \in at : TRUE

Before(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])

\* T1, C4: what was acknowledged is in the log.
NothingAcknowledgedIsLost == \A k \in 1..Len(acks) : Position(acks[k].entry) # <<>>

\* C1, C6: and in the order of acknowledgement.
AcknowledgedInOrder ==
    \A k \in 1..(Len(acks) - 1) :
        LET p == Position(acks[k].entry)
            q == Position(acks[k + 1].entry) IN
        p # <<>> /\ q # <<>> => Before(p, q)

\* T4: an entry that survives has not lost an earlier one of the same leader.
NoHoleInWhatALeaderSent ==
    \A i, j \in 1..Len(list) :
        (i < j /\ ledger[list[i]].state = "closed" /\ Len(Kept(list[j])) > 0) =>
            \A n \in (ledger[list[i]].end + 1)..Len(ledger[list[i]].sent) :
                \A m \in 1..Len(Kept(list[j])) :
                    ledger[list[i]].sent[n].epoch = Kept(list[j])[m].epoch =>
                        ledger[list[i]].sent[n].entry > Kept(list[j])[m].entry

\* Z2: a version of the list was set by one broker, and that one leads at it.
OneLeadsAtAVersion ==
    \A a, b \in Brokers :
        (a # b /\ broker[a].phase \in {"leading", "draining", "reading"}
               /\ broker[b].phase \in {"leading", "draining", "reading"}) =>
            broker[a].version # broker[b].version

\* Z1: leaders do not take turns: no acknowledgement of an earlier one after a later one's.
LeadersDoNotInterleave ==
    \A k \in 1..(Len(acks) - 1) : acks[k].epoch <= acks[k + 1].epoch
=============================================================================
