--------------------------- MODULE Reconciliation ---------------------------
(***************************************************************************)
(* A consumer group whose broker divides the partitions (KIP-848): members *)
(* at epochs, a target assignment that changes, heartbeats whose answers   *)
(* are lost, coordinators that know only what is in the log, members that  *)
(* do not give up in time what they have to.                               *)
(*                                                                         *)
(* What a heartbeat changes is a batch, which is durable later, or never   *)
(* if the coordinator fails before; what a member then reads is what it    *)
(* was told.                                                               *)
(*                                                                         *)
(* Taken for granted: a member takes nothing while what it has said last   *)
(* is without an answer, and no request arrives after its sender has given *)
(* it up. The second one lost answer in a row may fence a member: one      *)
(* epoch before is remembered. Silence is not modelled but as revocations  *)
(* that take too long. Each constant from ReleaseFirst on switches a rule  *)
(* off; TLC must then find a violation.                                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Members,
    Partitions,
    Nothing,
    TargetsMax,
    LossesMax,
    FailoversMax,
    RemovalsMax,
    ReleaseFirst,   \* RELEASE-FIRST: what another member has is not given
    LostAnswer,     \* LOST-ANSWER: the epoch before is served
    AnswerLate,     \* ANSWER-LATE: the answer comes when the change is durable
    OneBatch,       \* ONE-BATCH: nobody is served while a batch is on its way
    SaysWhat,       \* who does not say what he owns owns the same as before
    TimeRunsOut     \* GONE-IS-OUT: only who gives nothing up in time is removed

VARIABLES
    epoch,      \* of the target
    target,     \* who is to have each partition
    current,    \* what the log says that each member has
    batches,    \* on their way into the log
    request,    \* of each member, on its way to the coordinator
    answer,     \* on its way back
    client,     \* what each member knows
    late,       \* members that were removed and do not know it
    lost,       \* answers that each member has missed in a row
    left,       \* how many faults may come
    wrong       \* what an action has shown to be wrong: an epoch that fell, a fence without need

vars == <<epoch, target, current, batches, request, answer, client, late, lost, left, wrong>>

Fenced == 0
Same == Nothing

Absent == [in |-> FALSE, epoch |-> 0, prev |-> 0, state |-> "stable", has |-> {}, gives |-> {}]

Has(t, m) == {p \in Partitions : t[p] = m}

Init ==
    /\ epoch = 1
    /\ target \in [Partitions -> Members]
    /\ current = [m \in Members |-> [Absent EXCEPT !.in = TRUE, !.epoch = 1, !.has = Has(target, m)]]
    /\ batches = <<>>
    /\ request = [m \in Members |-> Nothing]
    /\ answer = [m \in Members |-> Nothing]
    /\ client = [m \in Members |-> [epoch |-> 1, owned |-> Has(target, m), told |-> Has(target, m),
                                    says |-> FALSE, waits |-> FALSE, unsure |-> FALSE]]
    /\ late = {}
    /\ lost = [m \in Members |-> 0]
    /\ left = [losses |-> LossesMax, failovers |-> FailoversMax, removals |-> RemovalsMax]
    /\ wrong = {}

---------------------------------------------------------------------------
(* Members.                                                                *)

\* It asks when there is something to hear or to say; what it would ask for besides changes nothing.
Send(m) ==
    LET c == client[m] IN
    /\ ~c.waits
    /\ \/ c.says
       \/ c.epoch # epoch
       \/ ~current[m].in
       \/ current[m].state # "stable"
    /\ request' = [request EXCEPT ![m] =
        [epoch |-> c.epoch, owned |-> IF c.says \/ c.epoch = 0 THEN c.owned ELSE Same]]
    /\ client' = [client EXCEPT ![m].waits = TRUE, ![m].says = FALSE]
    /\ UNCHANGED <<epoch, target, current, batches, answer, late, lost, left, wrong>>

Hear(m) ==
    LET a == answer[m]
        c == client[m] IN
    /\ a # Nothing
    /\ answer' = [answer EXCEPT ![m] = Nothing]
    /\ lost' = [lost EXCEPT ![m] = 0]
    /\ IF a.epoch = Fenced
       THEN /\ client' = [client EXCEPT ![m] = [epoch |-> 0, owned |-> {}, told |-> {}, says |-> TRUE,
                                                waits |-> FALSE, unsure |-> FALSE]]
            /\ late' = late \ {m}
            /\ wrong' = IF m \in late \/ lost[m] > 1 THEN wrong ELSE wrong \cup {"needless fence"}
       ELSE /\ client' = [client EXCEPT ![m].epoch = a.epoch, ![m].told = a.has,
                                        ![m].waits = FALSE, ![m].unsure = FALSE]
            /\ wrong' = IF a.epoch < c.epoch THEN wrong \cup {"an epoch fell"} ELSE wrong
            /\ UNCHANGED late
    /\ UNCHANGED <<epoch, target, current, batches, request, left>>

GiveUp(m) ==
    LET c == client[m] IN
    /\ ~(c.owned \subseteq c.told)
    /\ client' = [client EXCEPT ![m].owned = c.owned \cap c.told, ![m].says = TRUE]
    /\ UNCHANGED <<epoch, target, current, batches, request, answer, late, lost, left, wrong>>

Take(m) ==
    LET c == client[m] IN
    /\ ~c.waits
    /\ ~c.unsure
    /\ c.owned \subseteq c.told
    /\ c.owned # c.told
    /\ client' = [client EXCEPT ![m].owned = c.told, ![m].says = TRUE]
    /\ UNCHANGED <<epoch, target, current, batches, request, answer, late, lost, left, wrong>>

WithoutAnswer(c) == [c EXCEPT !.waits = FALSE, !.says = TRUE, !.unsure = TRUE]

\* It waits no longer: its request, or the answer, was lost.
Lose(m) ==
    /\ client[m].waits
    /\ left.losses > 0
    /\ left' = [left EXCEPT !.losses = @ - 1]
    /\ request' = [request EXCEPT ![m] = Nothing]
    /\ answer' = [answer EXCEPT ![m] = Nothing]
    /\ batches' = [i \in 1..Len(batches) |->
                    IF batches[i].m = m THEN [batches[i] EXCEPT !.answer = Nothing] ELSE batches[i]]
    /\ client' = [client EXCEPT ![m] = WithoutAnswer(@)]
    /\ lost' = [lost EXCEPT ![m] = IF @ < 2 THEN @ + 1 ELSE @]
    /\ UNCHANGED <<epoch, target, current, late, wrong>>

---------------------------------------------------------------------------
(* The coordinator.                                                        *)

IsFree(p, m) == \A n \in Members \ {m} : p \notin current[n].has \cup current[n].gives

Reconciled(m, r) ==
    LET c == IF current[m].in THEN current[m] ELSE [Absent EXCEPT !.in = TRUE]
        owned == IF r.owned # Same THEN r.owned ELSE IF SaysWhat THEN c.has \cup c.gives ELSE {}
        wanted == Has(target, m)
        kept == c.has \cap wanted
        gone == c.has \ wanted
        free == {p \in wanted : ReleaseFirst => IsFree(p, m)} IN
    IF c.state = "unrevoked" /\ owned \cap c.gives # {} THEN c
    ELSE IF c.state = "stable" /\ c.epoch = epoch THEN c
    ELSE IF gone \cap owned # {}
    THEN [c EXCEPT !.state = "unrevoked", !.has = kept, !.gives = gone]
    ELSE [in |-> TRUE, epoch |-> epoch, prev |-> IF c.epoch # epoch THEN c.epoch ELSE c.prev,
          state |-> IF free = wanted THEN "stable" ELSE "unreleased", has |-> kept \cup free, gives |-> {}]

IsServed(m, r) ==
    LET c == current[m] IN
    \/ r.epoch = 0
    \/ c.in /\ r.epoch = c.epoch
    \/ /\ c.in
       /\ LostAnswer
       /\ r.epoch = c.prev
       /\ r.owned # Same
       /\ r.owned \subseteq c.has

Serve(m) ==
    LET r == request[m] IN
    /\ r # Nothing
    /\ OneBatch => batches = <<>>
    /\ \A i \in 1..Len(batches) : batches[i].m # m
    /\ request' = [request EXCEPT ![m] = Nothing]
    /\ IF ~IsServed(m, r)
       THEN /\ answer' = [answer EXCEPT ![m] = [epoch |-> Fenced, has |-> {}]]
            /\ UNCHANGED batches
       ELSE LET new == Reconciled(m, r)
                told == [epoch |-> new.epoch, has |-> new.has] IN
            IF new = current[m]
            THEN /\ answer' = [answer EXCEPT ![m] = told]
                 /\ UNCHANGED batches
            ELSE /\ batches' = Append(batches,
                        [m |-> m, new |-> new, answer |-> IF AnswerLate THEN told ELSE Nothing])
                 /\ answer' = IF AnswerLate THEN answer ELSE [answer EXCEPT ![m] = told]
    /\ UNCHANGED <<epoch, target, current, client, late, lost, left, wrong>>

Durable ==
    /\ batches # <<>>
    /\ LET b == Head(batches) IN
        /\ current' = [current EXCEPT ![b.m] = b.new]
        /\ answer' = IF b.answer = Nothing THEN answer ELSE [answer EXCEPT ![b.m] = b.answer]
    /\ batches' = Tail(batches)
    /\ UNCHANGED <<epoch, target, request, client, late, lost, left, wrong>>

NewTarget ==
    /\ epoch < TargetsMax
    /\ OneBatch => batches = <<>>
    /\ epoch' = epoch + 1
    /\ target' \in [Partitions -> {m \in Members : current[m].in}]
    /\ target' # target
    /\ UNCHANGED <<current, batches, request, answer, client, late, lost, left, wrong>>

\* Its time to give partitions up is over.
Remove(m) ==
    /\ left.removals > 0
    /\ batches = <<>>
    /\ current[m].in
    /\ TimeRunsOut => current[m].state = "unrevoked"
    /\ \E n \in Members \ {m} : current[n].in
    /\ left' = [left EXCEPT !.removals = @ - 1]
    /\ current' = [current EXCEPT ![m] = Absent]
    /\ late' = IF current[m].state = "unrevoked" THEN late \cup {m} ELSE late
    /\ UNCHANGED <<epoch, target, batches, request, answer, client, lost, wrong>>

RECURSIVE Stored(_, _)
Stored(c, bs) == IF bs = <<>> THEN c ELSE Stored([c EXCEPT ![Head(bs).m] = Head(bs).new], Tail(bs))

\* Another coordinator reads the log: all, some or nothing of what was on its way is in it.
FailOver ==
    LET unheard == {m \in Members : request[m] # Nothing
                        \/ \E i \in 1..Len(batches) : batches[i].m = m /\ batches[i].answer # Nothing} IN
    /\ left.failovers > 0
    /\ left' = [left EXCEPT !.failovers = @ - 1]
    /\ \E kept \in 0..Len(batches) : current' = Stored(current, SubSeq(batches, 1, kept))
    /\ batches' = <<>>
    /\ request' = [m \in Members |-> Nothing]
    /\ client' = [m \in Members |-> IF m \in unheard THEN WithoutAnswer(client[m]) ELSE client[m]]
    /\ lost' = [m \in Members |-> IF m \in unheard /\ lost[m] < 2 THEN lost[m] + 1 ELSE lost[m]]
    /\ UNCHANGED <<epoch, target, answer, late, wrong>>

Next ==
    \/ \E m \in Members :
        Send(m) \/ Hear(m) \/ GiveUp(m) \/ Take(m) \/ Lose(m) \/ Serve(m) \/ Remove(m)
    \/ Durable \/ NewTarget \/ FailOver

Fair == \A m \in Members : WF_vars(Send(m)) /\ WF_vars(Hear(m)) /\ WF_vars(GiveUp(m))
                            /\ WF_vars(Take(m)) /\ WF_vars(Serve(m))

Spec == Init /\ [][Next]_vars /\ Fair /\ WF_vars(Durable)

Symmetry == Permutations(Members) \cup Permutations(Partitions)

---------------------------------------------------------------------------
(* What must hold.                                                         *)

TypeOK ==
    /\ \A m \in Members : current[m].epoch <= epoch /\ current[m].has \cap current[m].gives = {}
    /\ OneBatch => Len(batches) <= 1
    /\ \A m \in Members : request[m] # Nothing \/ answer[m] # Nothing => client[m].waits

\* H1: nobody reads what another one reads who was not given up.
OneReader ==
    \A m, n \in Members \ late : m # n => client[m].owned \cap client[n].owned = {}

\* H1, in the log.
OneOwner ==
    \A m, n \in Members : m # n =>
        (current[m].has \cup current[m].gives) \cap (current[n].has \cup current[n].gives) = {}

\* H2, H7
NothingWrong == wrong = {}

\* H3: in the end everybody reads his part of the target, if all are there.
Settled == \A m \in Members : client[m].owned = Has(target, m) /\ client[m].epoch = epoch
Converges == <>[](Settled \/ \E p \in Partitions : ~current[target[p]].in)
=============================================================================
