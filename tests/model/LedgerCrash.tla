---------------------------- MODULE LedgerCrash ----------------------------
(***************************************************************************)
(* One ledger whose bookies crash: which of the things a bookie says must  *)
(* be on its disk before it says them.                                     *)
(*                                                                         *)
(* Upstream's model has bookies that never forget. Here each has a volatile*)
(* part (accepted, not yet synced) and a durable one; a crash takes the    *)
(* volatile part, or tears it: any part of it may have reached the disk.   *)
(* There is one ensemble (changes of it are not modelled), one writer, and *)
(* any number of recoverers that work at the same time.                    *)
(*                                                                         *)
(* Two rules are followed here but cannot be switched off, because nothing *)
(* in this model breaks without them: fences that cover the ensemble       *)
(* before the first read (every read fences anyway), and telling recovery  *)
(* of entries not yet synced (a fence that is durable makes durable what   *)
(* was accepted before it).                                                *)
(*                                                                         *)
(* Rules by their names in client/ledger/PROTOCOL.md and bookie/README.md. *)
(* Each constant below switches one off; TLC must then find a violation.   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Bookies, WriteQuorum, AckQuorum,    \* every bookie is in every write set: E = Qw
    Recoverers,
    EntriesMax,
    CrashesMax,
    SyncBeforeAck,      \* an add is durable before it is answered
    SyncBeforeFenced,   \* a fence is durable before it is answered
    ReadsFence,         \* REC-READ-FENCE: every recovery read fences
    FrozenLac,          \* REC-FROZEN-LAC: write-backs carry the LAC recovery began with
    EnoughNo,           \* REC-NEGATIVE: Qw - Qa + 1 times "never stored" end a ledger, not one
    WriteBack,          \* REC-WRITE: an entry counts as recovered on Qa bookies
    CloseByCas          \* REC-CLOSE: who closed first is right

Entries == 1..EntriesMax
NoLac == 0
Cover == Cardinality(Bookies) - AckQuorum + 1
No == WriteQuorum - AckQuorum + 1

VARIABLES
    disk,       \* per bookie: what a crash leaves
    memory,     \* per bookie: what it goes by; never less than what is on disk
    writer,     \* sent, confirmed, and who stored which entry
    recoverer,
    state, end, \* the ledger's metadata
    ends,       \* every end it was ever closed at
    promised,   \* the highest end a reader was ever entitled to
    crashes

vars == <<disk, memory, writer, recoverer, state, end, ends, promised, crashes>>

\* entries: entry -> the LAC it carries, for those the bookie has.
Blank == [entries |-> [e \in {} |-> 0], fenced |-> FALSE]
FreshRecoverer == [phase |-> "idle", fenced |-> {}, lac |-> 0, next |-> 0,
                   no |-> {}, found |-> FALSE, stored |-> {}, end |-> 0]

Init ==
    /\ disk = [b \in Bookies |-> Blank]
    /\ memory = [b \in Bookies |-> Blank]
    /\ writer = [sent |-> 0, confirmed |-> 0, accepted |-> [e \in Entries |-> {}],
                 stored |-> [e \in Entries |-> {}]]
    /\ recoverer = [r \in Recoverers |-> FreshRecoverer]
    /\ state = "open"
    /\ end = 0
    /\ ends = {}
    /\ promised = 0
    /\ crashes = 0

Max(S) == CHOOSE m \in S : \A n \in S : n <= m
Has(part, b, e) == e \in DOMAIN part[b].entries
Put(part, b, e, lac) ==
    [part EXCEPT ![b].entries = [x \in DOMAIN @ \cup {e} |-> IF x = e THEN lac ELSE @[x]]]
\* Where nothing crashes, what is on disk is what is in memory: one step less.
Durably == disk' = IF CrashesMax = 0 THEN memory' ELSE disk

Lacs(part, b) == {part[b].entries[e] : e \in DOMAIN part[b].entries} \cup {NoLac}

---------------------------------------------------------------------------
(* The writer. An entry carries the last confirmed entry of its sending.   *)

Send ==
    /\ writer.sent < EntriesMax
    /\ state = "open"
    /\ writer' = [writer EXCEPT !.sent = @ + 1]
    /\ UNCHANGED <<disk, memory, recoverer, state, end, ends, promised, crashes>>

\* Accepted: in memory, on its way to the disk. Entries reach a bookie in order; a crash of
\* the bookie or a lost connection may leave any of them out.
Accept(b, e) ==
    /\ e <= writer.sent
    /\ ~memory[b].fenced
    /\ ~Has(memory, b, e)
    /\ memory' = Put(memory, b, e, IF writer.confirmed < e THEN writer.confirmed ELSE e - 1)
    /\ writer' = [writer EXCEPT !.accepted[e] = @ \cup {b}]
    /\ Durably
    /\ UNCHANGED <<recoverer, state, end, ends, promised, crashes>>

\* A group commit: everything accepted so far is on disk.
Sync(b) ==
    /\ disk[b] # memory[b]
    /\ disk' = [disk EXCEPT ![b] = memory[b]]
    /\ UNCHANGED <<memory, writer, recoverer, state, end, ends, promised, crashes>>

\* The answer to an add reaches the writer.
Stored(b, e) ==
    /\ b \in writer.accepted[e]
    /\ IF SyncBeforeAck THEN Has(disk, b, e) ELSE Has(memory, b, e)
    /\ b \notin writer.stored[e]
    /\ writer' = [writer EXCEPT !.stored[e] = @ \cup {b}]
    /\ UNCHANGED <<disk, memory, recoverer, state, end, ends, promised, crashes>>

Confirm ==
    /\ writer.confirmed < writer.sent
    /\ Cardinality(writer.stored[writer.confirmed + 1]) >= AckQuorum
    /\ writer' = [writer EXCEPT !.confirmed = @ + 1]
    /\ UNCHANGED <<disk, memory, recoverer, state, end, ends, promised, crashes>>

---------------------------------------------------------------------------
(* Crashes. Each entry not yet synced is lost or kept; so is the fence.    *)
(* What is kept is synced before the bookie serves again. Adds that were   *)
(* not on disk are never answered: their connection is gone.               *)

Crash(b) ==
    /\ crashes < CrashesMax
    /\ memory[b] # disk[b]          \* without that a crash is a pause
    /\ crashes' = crashes + 1
    /\ \E kept \in SUBSET (DOMAIN memory[b].entries \ DOMAIN disk[b].entries) :
       \E fenced \in {disk[b].fenced, memory[b].fenced} :
        LET after == [entries |-> [e \in DOMAIN disk[b].entries \cup kept |-> memory[b].entries[e]],
                      fenced |-> fenced] IN
        /\ disk' = [disk EXCEPT ![b] = after]
        /\ memory' = [memory EXCEPT ![b] = after]
    /\ writer' = [writer EXCEPT !.accepted = [e \in Entries |->
                    IF Has(disk, b, e) THEN @[e] ELSE @[e] \ {b}]]
    /\ UNCHANGED <<recoverer, state, end, ends, promised>>

---------------------------------------------------------------------------
(* Recovery                                                                *)

Mark(r) ==
    /\ recoverer[r].phase = "idle"
    /\ state # "closed"
    /\ state' = "recovery"
    /\ recoverer' = [recoverer EXCEPT ![r] = [FreshRecoverer EXCEPT !.phase = "fencing"]]
    /\ UNCHANGED <<disk, memory, writer, end, ends, promised, crashes>>

Fenced(b) == memory[b].fenced /\ (SyncBeforeFenced => disk[b].fenced)

\* A bookie is asked to fence; it answers in a later step, when it may.
Fence(b) ==
    /\ \E r \in Recoverers : recoverer[r].phase \in {"fencing", "reading"}
    /\ ~memory[b].fenced
    /\ memory' = [memory EXCEPT ![b].fenced = TRUE]
    /\ Durably
    /\ UNCHANGED <<writer, recoverer, state, end, ends, promised, crashes>>

FenceAnswer(r, b) ==
    /\ recoverer[r].phase = "fencing"
    /\ b \notin recoverer[r].fenced
    /\ Fenced(b)
    /\ recoverer' = [recoverer EXCEPT ![r].fenced = @ \cup {b},
                                      ![r].lac = Max({@} \cup Lacs(memory, b))]
    /\ UNCHANGED <<disk, memory, writer, state, end, ends, promised, crashes>>

Begin(r) ==
    /\ recoverer[r].phase = "fencing"
    /\ Cardinality(recoverer[r].fenced) >= Cover
    /\ recoverer' = [recoverer EXCEPT ![r].phase = "reading", ![r].next = recoverer[r].lac + 1,
                                      ![r].end = recoverer[r].lac]
    /\ UNCHANGED <<disk, memory, writer, state, end, ends, promised, crashes>>

\* What a bookie says of the entry that is looked for.
ReadAnswer(r, b) ==
    /\ recoverer[r].phase = "reading"
    /\ ~recoverer[r].found
    /\ b \notin recoverer[r].no
    /\ ReadsFence => Fenced(b)
    /\ LET e == recoverer[r].next IN
        recoverer' = IF Has(memory, b, e)
                     THEN [recoverer EXCEPT ![r].found = TRUE, ![r].no = {}]
                     ELSE [recoverer EXCEPT ![r].no = @ \cup {b}]
    /\ UNCHANGED <<disk, memory, writer, state, end, ends, promised, crashes>>

\* A write-back; fenced bookies take it. It is answered like any add.
RecoveryAdd(r, b) ==
    /\ recoverer[r].phase = "reading"
    /\ recoverer[r].found
    /\ ~Has(memory, b, recoverer[r].next)
    /\ memory' = Put(memory, b, recoverer[r].next,
                     IF FrozenLac THEN recoverer[r].lac ELSE recoverer[r].end)
    /\ Durably
    /\ UNCHANGED <<writer, recoverer, state, end, ends, promised, crashes>>

RecoveryStored(r, b) ==
    /\ recoverer[r].phase = "reading"
    /\ recoverer[r].found
    /\ b \notin recoverer[r].stored
    /\ IF SyncBeforeAck THEN Has(disk, b, recoverer[r].next) ELSE Has(memory, b, recoverer[r].next)
    /\ recoverer' = [recoverer EXCEPT ![r].stored = @ \cup {b}]
    /\ UNCHANGED <<disk, memory, writer, state, end, ends, promised, crashes>>

Recovered(r) ==
    /\ recoverer[r].phase = "reading"
    /\ recoverer[r].found
    /\ WriteBack => Cardinality(recoverer[r].stored) >= AckQuorum
    /\ recoverer' = [recoverer EXCEPT ![r].end = recoverer[r].next,
                                      ![r].next = @ + 1,
                                      ![r].found = FALSE, ![r].stored = {}, ![r].no = {}]
    /\ UNCHANGED <<disk, memory, writer, state, end, ends, promised, crashes>>

Close(r) ==
    /\ recoverer[r].phase = "reading"
    /\ ~recoverer[r].found
    /\ Cardinality(recoverer[r].no) >= (IF EnoughNo THEN No ELSE 1)
    /\ IF state = "closed" /\ CloseByCas THEN UNCHANGED <<state, end, ends>>
       ELSE state' = "closed" /\ end' = recoverer[r].end /\ ends' = ends \cup {end'}
    /\ recoverer' = [recoverer EXCEPT ![r] = [FreshRecoverer EXCEPT !.phase = "done"]]
    /\ UNCHANGED <<disk, memory, writer, promised, crashes>>

---------------------------------------------------------------------------
(* A reader of the open ledger believes any bookie's LAC; of the closed    *)
(* one, its end.                                                           *)

ReadLac(b) ==
    /\ state # "closed"
    /\ Max(Lacs(memory, b)) > promised
    /\ promised' = Max(Lacs(memory, b))
    /\ UNCHANGED <<disk, memory, writer, recoverer, state, end, ends, crashes>>

Next ==
    \/ Send \/ Confirm
    \/ \E b \in Bookies :
        \/ Sync(b) \/ Crash(b) \/ Fence(b) \/ ReadLac(b)
        \/ \E e \in Entries : Accept(b, e) \/ Stored(b, e)
    \/ \E r \in Recoverers :
        \/ Mark(r) \/ Begin(r) \/ Recovered(r) \/ Close(r)
        \/ \E b \in Bookies : FenceAnswer(r, b) \/ ReadAnswer(r, b) \/ RecoveryAdd(r, b)
                              \/ RecoveryStored(r, b)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Bookies) \cup Permutations(Recoverers)

---------------------------------------------------------------------------
TypeOK ==
    /\ state \in {"open", "recovery", "closed"}
    /\ writer.confirmed <= writer.sent

\* L2: what was confirmed to its writer's user is not cut off.
NothingConfirmedIsCutOff == state = "closed" => writer.confirmed <= end

\* R6, C3: a closed ledger's end is final.
ClosedOnce == Cardinality(ends) <= 1

\* L3: and can be read.
ConfirmedIsReadable ==
    \A e \in 1..writer.confirmed : \E b \in Bookies : Has(memory, b, e)

\* L4: a closed ledger's entries are on an ack quorum.
ClosedIsStored ==
    state = "closed" =>
        \A e \in 1..end : Cardinality({b \in Bookies : Has(disk, b, e)}) >= AckQuorum

\* R1, R2: whatever a reader was entitled to see stays in the ledger.
WhatWasReadStays == state = "closed" => promised <= end

\* R8: confirmed means on the disks of an ack quorum.
ConfirmedIsDurable ==
    \A e \in 1..writer.confirmed : Cardinality({b \in Bookies : Has(disk, b, e)}) >= AckQuorum
=============================================================================
