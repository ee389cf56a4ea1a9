---------------------------- MODULE OffsetCopies ----------------------------
(***************************************************************************)
(* The offset of one group for one partition, in the log of groups: plain  *)
(* commits, offsets of transactions that wait for their markers, copies    *)
(* that let the log's beginning go, and coordinators that take over and    *)
(* know only what is left of it.                                           *)
(*                                                                         *)
(* A record is sent first and applied later, when it is durable; a         *)
(* takeover applies what it finds and may lose what was not applied. A     *)
(* copy reads what is applied, and is appended behind what was sent. Its   *)
(* trim comes when it is applied itself, and no transaction that began     *)
(* before its end is open. What a transaction may still change is copied   *)
(* when none may any more, unless something newer has come by then.        *)
(*                                                                         *)
(* Taken for granted: which markers belong to which transactions           *)
(* (Transactions.tla). A value is the position of its record in the log,   *)
(* so that no two are alike. Each constant from CopyLater on switches a    *)
(* rule off; TLC must then find a violation.                               *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
    Producers,
    RecordsMax,
    CopyLater,      \* COPY-DECIDED: what a transaction may change is left out of a copy
    CopyAtLast,     \* COPY-DECIDED: ... and copied as soon as none may, if it is still the newest
    TrimStable,     \* COPY-DECIDED: no trim while a transaction is open that began before its end
    KeepPending,    \* the log is kept from the oldest pending record on
    LeaveOut        \* what has a plain commit on its way is left out of a copy

VARIABLES
    log,        \* all records there ever were
    start,      \* how many of them were trimmed
    applied,    \* how many are durable and known to the coordinator
    copy        \* the one under way: what its trim leaves, its last record, and the value that it
                \* left out, which may have to be copied yet; or Nothing

vars == <<log, start, applied, copy>>

Nothing == [from |-> 0, to |-> 0, left |-> 0, phase |-> "none"]

Init ==
    /\ log = <<>>
    /\ start = 0
    /\ applied = 0
    /\ copy = Nothing

---------------------------------------------------------------------------
(* What a log says.                                                        *)

NonePending == [t \in Producers |-> 0]
Empty == [committed |-> 0, pending |-> NonePending]

AsPlain(s, r) == [committed |-> r.value, pending |-> NonePending]

\* A pending offset is published: what is pending from before it can never be the newest any more.
Publish(s, t) ==
    [committed |-> s.pending[t],
     pending |-> [u \in Producers |-> IF s.pending[u] <= s.pending[t] THEN 0 ELSE s.pending[u]]]

Step(s, r) ==
    CASE r.kind = "plain" -> AsPlain(s, r)
      [] r.kind = "pending" -> [s EXCEPT !.pending[r.by] = r.value]
      [] r.kind = "commit" -> IF s.pending[r.by] = 0 THEN s ELSE Publish(s, r.by)
      [] r.kind = "abort" -> [s EXCEPT !.pending[r.by] = 0]

RECURSIVE Fold(_)
Fold(l) == IF l = <<>> THEN Empty ELSE Step(Fold(SubSeq(l, 1, Len(l) - 1)), l[Len(l)])

IsOriginal(r) == ~r.isCopy
Truth(l) == Fold(SelectSeq(l, IsOriginal))

\* What a coordinator would know that took over now.
Left == Fold(SubSeq(log, start + 1, Len(log)))

\* How much of a log is stable: no transaction that is open began before its end.
IsDecided(l, i) == l[i].kind = "pending" =>
    \E j \in (i + 1)..Len(l) : l[j].kind \in {"commit", "abort"} /\ l[j].by = l[i].by
Stable(l) == CHOOSE n \in 0..Len(l) :
    /\ \A i \in 1..n : IsDecided(l, i)
    /\ n = Len(l) \/ ~IsDecided(l, n + 1)

\* What a stranger knows who reads the committed records of a log from `first` on, up to where it
\* is stable, and takes each for news: consumers of the topic that are no coordinators.
Ending(l, i) == CHOOSE j \in (i + 1)..Len(l) :
    /\ l[j].kind \in {"commit", "abort"} /\ l[j].by = l[i].by
    /\ \A k \in (i + 1)..(j - 1) : ~(l[k].kind \in {"commit", "abort"} /\ l[k].by = l[i].by)
IsSeen(l, i) ==
    \/ l[i].kind = "plain"
    \/ l[i].kind = "pending" /\ l[Ending(l, i)].kind = "commit"
SeenBy(l, first, isSeen(_)) ==
    LET seen == {i \in (first + 1)..Stable(l) : IsSeen(l, i) /\ isSeen(l[i])} IN
    IF seen = {} THEN 0 ELSE l[CHOOSE i \in seen : \A j \in seen : j <= i].value

---------------------------------------------------------------------------
(* Clients and their coordinators of transactions.                         *)

Send(r) ==
    /\ Len(log) < RecordsMax
    /\ log' = Append(log, r)

Record(kind, t) == [kind |-> kind, by |-> t, value |-> Len(log) + 1, isCopy |-> FALSE]

IsOpen(t) == \E i \in 1..Len(log) :
    /\ log[i].kind = "pending" /\ log[i].by = t
    /\ \A j \in (i + 1)..Len(log) : log[j].kind \in {"commit", "abort"} => log[j].by # t

SendPlain == Send(Record("plain", CHOOSE t \in Producers : TRUE)) /\ UNCHANGED <<start, applied, copy>>
SendPending(t) == ~IsOpen(t) /\ Send(Record("pending", t)) /\ UNCHANGED <<start, applied, copy>>
SendMarker(t, kind) == IsOpen(t) /\ Send(Record(kind, t)) /\ UNCHANGED <<start, applied, copy>>

Apply ==
    /\ applied < Len(log)
    /\ applied' = applied + 1
    /\ UNCHANGED <<log, start, copy>>

---------------------------------------------------------------------------
(* Copies.                                                                 *)

Known == Truth(SubSeq(log, 1, applied))
InFlight(kind) == \E i \in (applied + 1)..Len(log) : log[i].kind = kind
First(pending) == CHOOSE n \in {pending[t] : t \in Producers} \ {0} :
                    \A t \in Producers : pending[t] = 0 \/ n <= pending[t]

Begin ==
    /\ copy.phase = "none"
    /\ applied > start
    /\ copy' = [from |-> IF KeepPending /\ Known.pending # NonePending
                         THEN First(Known.pending) - 1 ELSE applied,
                to |-> 0, left |-> 0, phase |-> "begun"]
    /\ UNCHANGED <<log, start, applied>>

Copied(to) == [copy EXCEPT !.phase = "written", !.to = to, !.left = 0]
IsUnstable == Known.pending # NonePending \/ InFlight("pending")

\* The value that is known, or what was left out of the copy before.
WriteValue ==
    IF Known.committed = 0 \/ (LeaveOut /\ InFlight("plain"))
    THEN UNCHANGED log /\ copy' = Copied(Len(log))
    ELSE IF CopyLater /\ IsUnstable
    THEN UNCHANGED log /\ copy' = [copy EXCEPT !.phase = "written", !.to = Len(log),
                                              !.left = Known.committed]
    ELSE /\ Send([kind |-> "plain", by |-> CHOOSE t \in Producers : TRUE,
                  value |-> Known.committed, isCopy |-> TRUE])
         /\ copy' = Copied(Len(log) + 1)

Write ==
    /\ copy.phase = "begun"
    /\ WriteValue
    /\ UNCHANGED <<start, applied>>

\* Once more, since something was left out: nothing to do if something newer was applied.
WriteAgain ==
    /\ CopyAtLast
    /\ copy.phase = "written" /\ copy.left # 0
    /\ IF Known.committed # copy.left
       THEN UNCHANGED log /\ copy' = Copied(Len(log))
       ELSE ~IsUnstable /\ WriteValue
    /\ UNCHANGED <<start, applied>>

Trim ==
    /\ copy.phase = "written"
    /\ applied >= copy.to
    /\ CopyAtLast => copy.left = 0
    /\ TrimStable => Stable(SubSeq(log, 1, applied)) >= copy.to
    /\ start' = IF copy.from > start THEN copy.from ELSE start
    /\ copy' = Nothing
    /\ UNCHANGED <<log, applied>>

---------------------------------------------------------------------------

TakeOver ==
    /\ \E kept \in applied..Len(log) :
        /\ log' = SubSeq(log, 1, kept)
        /\ applied' = kept
    /\ copy' = Nothing
    /\ UNCHANGED start

Next ==
    \/ \E t \in Producers :
        \/ SendPending(t)
        \/ SendMarker(t, "commit") \/ SendMarker(t, "abort")
    \/ SendPlain \/ Apply \/ Begin \/ Write \/ WriteAgain \/ Trim \/ TakeOver

Spec == Init /\ [][Next]_vars

TypeOK ==
    /\ start <= applied
    /\ applied <= Len(log)
    /\ copy.phase \in {"none", "begun", "written"}

\* X9: whoever takes over knows the group's offset as if nothing had ever been trimmed, ...
CommittedStays == Left.committed = Truth(log).committed

\* ... and which transactions may still change it, ...
PendingStays == Left.pending = Truth(log).pending

\* ... and a stranger who reads what is left of the log sees what it would see in the whole of it.
StrangersAgree ==
    SeenBy(log, start, LAMBDA r : TRUE) = SeenBy(log, 0, IsOriginal)
=============================================================================
