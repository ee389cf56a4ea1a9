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
(* trim comes when it is applied itself.                                   *)
(*                                                                         *)
(* Taken for granted: which markers belong to which transactions           *)
(* (Transactions.tla). A value is the position of its record in the log,   *)
(* so that no two are alike. Each constant from CopyBehind on switches a   *)
(* rule off; TLC must then find a violation.                               *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
    Producers,
    RecordsMax,
    CopyBehind,     \* COPY-BEHIND: a copy of what a transaction may change ends nothing pending
    CopyYields,     \* COPY-BEHIND: ... and counts only if what is left holds no other
    KeepPending,    \* COPY-BEHIND: the log is kept from the oldest pending record on
    LeaveOut        \* what has a plain commit on its way is left out of a copy

VARIABLES
    log,        \* all records there ever were
    start,      \* how many of them were trimmed
    applied,    \* how many are durable and known to the coordinator
    copy        \* the one under way: what its trim leaves, and its last record; or Nothing

vars == <<log, start, applied, copy>>

Nothing == [from |-> 0, to |-> 0, phase |-> "none"]

Init ==
    /\ log = <<>>
    /\ start = 0
    /\ applied = 0
    /\ copy = Nothing

---------------------------------------------------------------------------
(* What a log says.                                                        *)

NonePending == [t \in Producers |-> 0]
Empty == [committed |-> 0, pending |-> NonePending, copied |-> FALSE]

AsPlain(s, r) == [committed |-> r.value, pending |-> NonePending, copied |-> FALSE]

\* A pending offset is published: what is pending from before it can never be the newest any more.
Publish(s, t) ==
    [committed |-> s.pending[t],
     pending |-> [u \in Producers |-> IF s.pending[u] <= s.pending[t] THEN 0 ELSE s.pending[u]],
     copied |-> FALSE]

Step(s, r) ==
    CASE r.kind = "plain" -> AsPlain(s, r)
      [] r.kind = "pending" -> [s EXCEPT !.pending[r.by] = r.value]
      [] r.kind = "commit" -> IF s.pending[r.by] = 0 THEN s ELSE Publish(s, r.by)
      [] r.kind = "abort" -> [s EXCEPT !.pending[r.by] = 0]
      [] r.kind = "marked" ->
            IF ~CopyBehind THEN AsPlain(s, r)
            ELSE IF ~CopyYields \/ s.copied \/ s.committed = 0
                 THEN [s EXCEPT !.committed = r.value, !.copied = TRUE] ELSE s

RECURSIVE Fold(_)
Fold(l) == IF l = <<>> THEN Empty ELSE Step(Fold(SubSeq(l, 1, Len(l) - 1)), l[Len(l)])

IsOriginal(r) == ~r.isCopy
Truth(l) == Fold(SelectSeq(l, IsOriginal))

\* What a coordinator would know that took over now.
Left == Fold(SubSeq(log, start + 1, Len(log)))

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
                to |-> 0, phase |-> "begun"]
    /\ UNCHANGED <<log, start, applied>>

Write ==
    /\ copy.phase = "begun"
    /\ IF Known.committed = 0 \/ (LeaveOut /\ InFlight("plain"))
       THEN /\ UNCHANGED log
            /\ copy' = [copy EXCEPT !.phase = "written", !.to = Len(log)]
       ELSE /\ LET isUnstable == Known.pending # NonePending \/ InFlight("pending") IN
               Send([kind |-> IF isUnstable THEN "marked" ELSE "plain",
                     by |-> CHOOSE t \in Producers : TRUE, value |-> Known.committed,
                     isCopy |-> TRUE])
            /\ copy' = [copy EXCEPT !.phase = "written", !.to = Len(log) + 1]
    /\ UNCHANGED <<start, applied>>

Trim ==
    /\ copy.phase = "written"
    /\ applied >= copy.to
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
    \/ SendPlain \/ Apply \/ Begin \/ Write \/ Trim \/ TakeOver

Spec == Init /\ [][Next]_vars

TypeOK ==
    /\ start <= applied
    /\ applied <= Len(log)
    /\ copy.phase \in {"none", "begun", "written"}

\* X9: whoever takes over knows the group's offset as if nothing had ever been trimmed, ...
CommittedStays == Left.committed = Truth(log).committed

\* ... and which transactions may still change it.
PendingStays == Left.pending = Truth(log).pending
=============================================================================
