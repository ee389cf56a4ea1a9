------------------------------ MODULE Offload ------------------------------
(***************************************************************************)
(* Sealed segments go to an object store, and their ledgers leave the      *)
(* bookies, while leaders come and go.                                     *)
(*                                                                         *)
(* What this model is about: a leader that copies a segment may be         *)
(* replaced at any moment, and what it sends may arrive long afterwards;   *)
(* what arrives may be less than was sent, or not the same; deletes may    *)
(* fail without a word; and when a ledger has gone, the object is the only *)
(* copy. The segment list, changed by compare-and-set, is all that a new   *)
(* leader knows.                                                           *)
(*                                                                         *)
(* A segment is a number; it is sealed when it is made, and the active one *)
(* is left out. An attempt is the name of an object: of one segment, never *)
(* used again. An object is whole, cut short (its footer is missing), or   *)
(* flipped (its footer is fine, and some block is not).                    *)
(*                                                                         *)
(* Rules by their names in broker/offload/core/procedures.py. Each of them *)
(* is a constant that switches it off; TLC must then find a violation.     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Brokers,        \* who may lead
    SegmentsMax,    \* segments ever sealed
    AttemptsMax,    \* names ever given
    ChangesMax,     \* versions of the list
    CrashesMax,
    DamagesMax,     \* objects that do not become what was sent, and deletes that do not happen
    Cas,            \* CAS: a change is made only on the version that it began from
    Intent,         \* INTENT: a name is listed before anything is sent
    OwnName,        \* OWN-NAME: a new attempt has a new name
    ReadBack,       \* READ-BACK: an object is listed once its footer was read back
    Verify,         \* VERIFY: a ledger goes only if the whole object was read back
    ListFirst,      \* LIST-FIRST: and after the list says that it is gone
    KeepTail,       \* KEEP-TAIL: the newest segments keep their ledgers
    Graves,         \* GRAVES: what is not needed any more is listed as buried
    Certain,        \* and until it is certain that it is not there
    SweepAfter      \* STRAY: strays are judged by a list that is read after they were seen

Segments == 1..SegmentsMax
Attempts == 1..AttemptsMax

VARIABLES
    list,       \* version, epoch, start, sealed; per segment: object (0: none), gone; intent; graves
    ledgers,    \* segments whose ledger is there
    object,     \* per name: what is there
    uploads,    \* per name: how many are under way
    made,       \* per name: the segment that it is for; 0: not used yet
    late,       \* names that were let go of while somebody was still sending
    broker,     \* per broker: its memory
    crashes,
    damages

vars == <<list, ledgers, object, uploads, made, late, broker, crashes, damages>>

FreshList == [version |-> 0, epoch |-> 0, start |-> 1, sealed |-> 0,
              obj |-> [s \in Segments |-> 0], gone |-> [s \in Segments |-> FALSE],
              intent |-> 0, graves |-> {}]
FreshBroker == [phase |-> "idle", list |-> FreshList, attempt |-> 0, segment |-> 0, seen |-> {}]

Init ==
    /\ list = FreshList
    /\ ledgers = {}
    /\ object = [a \in Attempts |-> "none"]
    /\ uploads = [a \in Attempts |-> 0]
    /\ made = [a \in Attempts |-> 0]
    /\ late = {}
    /\ broker = [b \in Brokers |-> FreshBroker]
    /\ crashes = 0
    /\ damages = 0

Live(l) == l.start..l.sealed
Named(l) == {l.obj[s] : s \in Live(l)} \cup {l.intent} \cup l.graves
Unused == {a \in Attempts : made[a] = 0}
Fresh == CHOOSE a \in Unused : \A other \in Unused : a <= other
HasFooter(a) == object[a] \in {"whole", "flipped"}

\* A compare-and-set of a leader: what it wants of the list that it knows.
Set(b, wanted, after) ==
    /\ list.version < ChangesMax
    /\ Cas => broker[b].list.version = list.version
    /\ list' = [wanted EXCEPT !.version = list.version + 1]
    /\ broker' = [broker EXCEPT ![b] = [after EXCEPT !.list = list']]

Now(b, after) == broker' = [broker EXCEPT ![b] = after]

---------------------------------------------------------------------------
(* Leaders, and the log.                                                   *)

TakeOver(b) ==
    /\ broker[b].phase = "idle"
    /\ list.version < ChangesMax
    /\ list' = [list EXCEPT !.version = @ + 1, !.epoch = @ + 1]
    /\ Now(b, [FreshBroker EXCEPT !.phase = "leading", !.list = list'])
    /\ UNCHANGED <<ledgers, object, uploads, made, late, crashes, damages>>

Crash(b) ==
    /\ broker[b].phase # "idle"
    /\ crashes < CrashesMax
    /\ crashes' = crashes + 1
    /\ Now(b, FreshBroker)
    /\ UNCHANGED <<list, ledgers, object, uploads, made, late, damages>>

Leads(b) == broker[b].phase = "leading"

Seal(b) ==
    LET l == broker[b].list IN
    /\ Leads(b)
    /\ l.sealed < SegmentsMax
    /\ Cas => l.version = list.version     \* else it gets no acknowledgement
    /\ Set(b, [l EXCEPT !.sealed = @ + 1], broker[b])
    /\ ledgers' = ledgers \cup {l.sealed + 1}
    /\ UNCHANGED <<object, uploads, made, late, crashes, damages>>

Trim(b) ==
    LET l == broker[b].list
        s == l.start
        ends == l.intent # 0 /\ made[l.intent] = s
        names == ({l.obj[s]} \cup (IF ends THEN {l.intent} ELSE {})) \ {0} IN
    /\ Leads(b)
    /\ s < l.sealed
    /\ Set(b, [l EXCEPT !.start = @ + 1,
                        !.intent = IF ends THEN 0 ELSE @,
                        !.graves = IF Graves THEN @ \cup names ELSE @], broker[b])
    /\ ledgers' = ledgers \ {s}
    /\ UNCHANGED <<object, uploads, made, late, crashes, damages>>

---------------------------------------------------------------------------
(* Copying.                                                                *)

Next_(l) == {s \in Live(l) : l.obj[s] = 0 /\ \A t \in Live(l) : t < s => l.obj[t] # 0}

Intend(b) ==
    LET me == broker[b] IN
    \E s \in Next_(me.list) :
        /\ Leads(b)
        /\ me.list.intent = 0
        /\ Unused # {}
        /\ made' = [made EXCEPT ![Fresh] = s]
        /\ LET after == [me EXCEPT !.phase = "intended", !.attempt = Fresh] IN
           IF Intent THEN Set(b, [me.list EXCEPT !.intent = Fresh], after)
           ELSE Now(b, after) /\ UNCHANGED list
        /\ UNCHANGED <<ledgers, object, uploads, late, crashes, damages>>

\* What another leader, or an earlier try, has begun.
Resume(b) ==
    LET me == broker[b]
        a == me.list.intent IN
    /\ Leads(b)
    /\ a # 0
    /\ IF HasFooter(a)
       THEN /\ Now(b, [me EXCEPT !.phase = "found", !.attempt = a])
            /\ UNCHANGED <<list, made>>
       ELSE IF OwnName
       THEN /\ Unused # {}
            /\ made' = [made EXCEPT ![Fresh] = made[a]]
            /\ Set(b, [me.list EXCEPT !.intent = Fresh, !.graves = @ \cup {a}],
                   [me EXCEPT !.phase = "intended", !.attempt = Fresh])
       ELSE /\ Now(b, [me EXCEPT !.phase = "intended", !.attempt = a])
            /\ UNCHANGED <<list, made>>
    /\ UNCHANGED <<ledgers, object, uploads, late, crashes, damages>>

Send(b) ==
    LET me == broker[b] IN
    /\ me.phase = "intended"
    /\ uploads[me.attempt] < 2
    /\ uploads' = [uploads EXCEPT ![me.attempt] = @ + 1]
    /\ Now(b, [me EXCEPT !.phase = "sent"])
    /\ UNCHANGED <<list, ledgers, object, made, late, crashes, damages>>

\* It arrives, whoever has sent it and whatever has happened since; or never.
Arrive(a) ==
    /\ uploads[a] > 0
    /\ uploads' = [uploads EXCEPT ![a] = @ - 1]
    /\ \E what \in {"whole", "cut", "flipped"} :
        /\ what # "whole" => damages < DamagesMax
        /\ damages' = IF what = "whole" THEN damages ELSE damages + 1
        /\ object' = [object EXCEPT ![a] = what]
    /\ UNCHANGED <<list, ledgers, made, late, broker, crashes>>

NeverArrive(a) ==
    /\ uploads[a] > 0
    /\ damages < DamagesMax
    /\ damages' = damages + 1
    /\ uploads' = [uploads EXCEPT ![a] = @ - 1]
    /\ UNCHANGED <<list, ledgers, object, made, late, broker, crashes>>

\* The put was answered, whatever that says; the answer may come before the object, or not at all.
Look(b) ==
    LET me == broker[b] IN
    /\ me.phase = "sent"
    /\ Now(b, [me EXCEPT !.phase = IF HasFooter(me.attempt) \/ ~ReadBack THEN "found"
                                   ELSE "leading"])
    /\ UNCHANGED <<list, ledgers, object, uploads, made, late, crashes, damages>>

Commit(b) ==
    LET me == broker[b]
        s == made[me.attempt] IN
    /\ me.phase = "found"
    /\ s \in Live(me.list)
    /\ me.list.obj[s] = 0
    /\ Set(b, [me.list EXCEPT !.obj[s] = me.attempt, !.intent = 0],
           [me EXCEPT !.phase = "leading"])
    /\ UNCHANGED <<ledgers, object, uploads, made, late, crashes, damages>>

---------------------------------------------------------------------------
(* Dropping.                                                               *)

Prove(b) ==
    LET me == broker[b]
        l == me.list IN
    \E s \in Live(l) :
        /\ Leads(b)
        /\ l.obj[s] # 0
        /\ ~l.gone[s]
        /\ \A t \in Live(l) : t < s => l.gone[t]
        /\ KeepTail => s < l.sealed
        /\ IF object[l.obj[s]] = "whole" \/ ~Verify
           THEN /\ Now(b, [me EXCEPT !.phase = "proven", !.segment = s])
                /\ UNCHANGED list
           ELSE Set(b, [l EXCEPT !.obj[s] = 0, !.graves = @ \cup {l.obj[s]}], me)
        /\ UNCHANGED <<ledgers, object, uploads, made, late, crashes, damages>>

DropListed(b) ==
    LET me == broker[b] IN
    /\ ListFirst
    /\ me.phase = "proven"
    /\ Set(b, [me.list EXCEPT !.gone[me.segment] = TRUE], [me EXCEPT !.phase = "dropping"])
    /\ UNCHANGED <<ledgers, object, uploads, made, late, crashes, damages>>

DropEarly(b) ==
    LET me == broker[b] IN
    /\ ~ListFirst
    /\ me.phase = "proven"
    /\ ledgers' = ledgers \ {me.segment}
    /\ Now(b, [me EXCEPT !.phase = "leading"])
    /\ UNCHANGED <<list, object, uploads, made, late, crashes, damages>>

DeleteLedger(b) ==
    LET me == broker[b] IN
    /\ me.phase = "dropping"
    /\ ledgers' = ledgers \ {me.segment}
    /\ Now(b, [me EXCEPT !.phase = "leading"])
    /\ UNCHANGED <<list, object, uploads, made, late, crashes, damages>>

\* What a leader that died has left behind.
SweepLedgers ==
    \E s \in Live(list) :
        /\ list.gone[s]
        /\ s \in ledgers
        /\ ledgers' = ledgers \ {s}
        /\ UNCHANGED <<list, object, uploads, made, late, broker, crashes, damages>>

---------------------------------------------------------------------------
(* Deleting objects.                                                       *)

Delete(b) ==
    LET me == broker[b] IN
    \E a \in me.list.graves :
        /\ Leads(b)
        /\ \/ object' = [object EXCEPT ![a] = "none"] /\ UNCHANGED damages
           \/ damages < DamagesMax /\ damages' = damages + 1 /\ UNCHANGED object
        /\ Now(b, [me EXCEPT !.phase = "deleted", !.attempt = a])
        /\ UNCHANGED <<list, ledgers, uploads, made, late, crashes>>

\* Somebody is sending it, or is about to: a leader that was replaced and does not know.
MayArrive(a) ==
    \/ uploads[a] > 0
    \/ \E c \in Brokers : broker[c].phase = "intended" /\ broker[c].attempt = a

Unbury(b) ==
    LET me == broker[b]
        a == me.attempt IN
    /\ me.phase = "deleted"
    /\ IF Certain /\ object[a] # "none"
       THEN Now(b, [me EXCEPT !.phase = "leading"]) /\ UNCHANGED <<list, late>>
       ELSE /\ Set(b, [me.list EXCEPT !.graves = @ \ {a}], [me EXCEPT !.phase = "leading"])
            /\ late' = IF MayArrive(a) THEN late \cup {a} ELSE late
    /\ UNCHANGED <<ledgers, object, uploads, made, crashes, damages>>

SeeObjects(b) ==
    LET me == broker[b] IN
    /\ Leads(b)
    /\ late # {} \/ ~SweepAfter     \* nothing else is a stray: fewer states
    /\ Now(b, [me EXCEPT !.phase = "seen",
                         !.seen = {a \in Attempts : object[a] # "none"}])
    /\ UNCHANGED <<list, ledgers, object, uploads, made, late, crashes, damages>>

SweepStrays(b) ==
    LET me == broker[b]
        strays == me.seen \ Named(IF SweepAfter THEN list ELSE me.list) IN
    /\ me.phase = "seen"
    /\ object' = [a \in Attempts |-> IF a \in strays THEN "none" ELSE object[a]]
    /\ Now(b, [me EXCEPT !.phase = "leading", !.seen = {}])
    /\ UNCHANGED <<list, ledgers, uploads, made, late, crashes, damages>>

---------------------------------------------------------------------------

Next ==
    \/ \E b \in Brokers :
        \/ TakeOver(b) \/ Crash(b) \/ Seal(b) \/ Trim(b)
        \/ Intend(b) \/ Resume(b) \/ Send(b) \/ Look(b) \/ Commit(b)
        \/ Prove(b) \/ DropListed(b) \/ DropEarly(b) \/ DeleteLedger(b)
        \/ Delete(b) \/ Unbury(b) \/ SeeObjects(b) \/ SweepStrays(b)
    \/ \E a \in Attempts : Arrive(a) \/ NeverArrive(a)
    \/ SweepLedgers

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Brokers)

---------------------------------------------------------------------------

TypeOK ==
    /\ list.version \in 0..ChangesMax
    /\ ledgers \subseteq Segments
    /\ object \in [Attempts -> {"none", "whole", "cut", "flipped"}]
    /\ late \subseteq Attempts

\* No acknowledged record is unreadable, whatever happens next.
Readable ==
    \A s \in Live(list) :
        \/ s \in ledgers
        \/ list.obj[s] # 0 /\ object[list.obj[s]] = "whole"

\* A ledger that the list does not call gone is there: a takeover trusts that.
ListedIsThere == \A s \in Live(list) : ~list.gone[s] => s \in ledgers

\* What a takeover recovers is there.
TailIsThere == list.sealed >= list.start /\ list.sealed > 0 => list.sealed \in ledgers

\* What the list calls stored is an object with a footer.
StoredIsThere == \A s \in Live(list) : list.obj[s] # 0 => HasFooter(list.obj[s])

\* Every object has a name that the list knows, or is one of a zombie's, which the sweep finds.
OrphansHaveNames == \A a \in Attempts : object[a] # "none" => a \in Named(list) \cup late
=============================================================================
