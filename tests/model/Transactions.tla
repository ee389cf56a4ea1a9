---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* One transactional id over several partitions: a client that retries     *)
(* over new connections, crashes and begins anew; coordinators that take   *)
(* each other over and do not know it; leaders of partitions that do the   *)
(* same; markers that arrive late, twice, or where they are not meant for. *)
(*                                                                         *)
(* Tv2 FALSE is the protocol of most clients: partitions are added by a    *)
(* request, and transactions of one producer epoch look alike. Tv2 TRUE is *)
(* that of KIP-890: an epoch for each transaction, partitions added by     *)
(* their leaders.                                                          *)
(*                                                                         *)
(* Taken for granted (LogRolling.tla, LedgerCrash.tla, Takeover.tla): a    *)
(* log keeps what is confirmed, who was fenced appends nothing, and a      *)
(* batch that was accepted is known by its sequence. The coordinator's     *)
(* record is durable at once, or never was: what it does before it is      *)
(* durable is the rule DecideFirst.                                        *)
(*                                                                         *)
(* A log here has one producer, so its transaction is open while its last  *)
(* entry is data. Each constant from Verify on switches a rule off; TLC    *)
(* must then find a violation.                                             *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Partitions,
    Tv2,                \* the protocol with an epoch for each transaction
    TxnsMax,            \* transactions that the client begins
    EpochsMax,          \* highest producer epoch
    ConnectionsMax,     \* of clients to coordinators
    BreaksFrom,         \* the coordinator epoch from which on the client's connections break
    CoordinatorsMax,    \* coordinator epochs; odd and even ones are at two brokers
    MovesMax,           \* takeovers of partitions; so are odd and even leader epochs
    SessionsMax,        \* connections of one coordinator to the leaders, one after the other
    Zombies,            \* coordinators do not notice that they were taken over
    Lag,                \* what is appended may still be lost until it is confirmed
    Nothing,            \* a model value
    Verify,             \* VERIFY: a partition asks before it opens a transaction
    Guard,              \* GUARD: a marker voids the question that is under way, if it may be about
                        \* what the marker ends: in TV2 a transaction of an older epoch (NEXT-EPOCH),
    GuardOwn,           \* in TV1 one of its own epoch, too
    Channel,            \* CHANNEL: nothing of an older session, once a newer one spoke
    MarkerAddress,      \* MARKER-ADDRESS: a marker is for one leader epoch
    OldConnection,      \* OLD-CONNECTION: nothing over older connections than the newest
    FreshLeader,        \* FRESH-LEADER: nothing over connections older than the coordinator
    MarkerOnce,         \* MARKER-ONCE: a marker with nothing to do is not written
    DecideFirst,        \* DECIDE-FIRST: no answer and no marker before the decision is durable
    CompleteLast,       \* DECIDE-FIRST: complete when every marker is confirmed
    CoordinatorFenced,  \* COORDINATOR-EPOCH: no marker of an older one than the log knows
    CoordinatorKept,    \* COORDINATOR-EPOCH: the first marker of a newer one is always written
    CoordinatorAsked,   \* COORDINATOR-EPOCH: no word of an older one than the log knows
    ProvenDone,         \* PROVEN: a leader that writes nothing says "done" once its lead is proven
    ProvenRetry,        \* PROVEN: so does a coordinator that takes an EndTxn for a retry
    ProvenAdd,          \* PROVEN: ... or partitions for those of the open transaction
    ProvenRefusal,      \* PROVEN: ... or that ends a client for good (48, 49, 90)
    FenceFirst,         \* a server that ends a transaction by itself raises the epoch
    Stable              \* STABLE: a transaction is undecided until its marker is confirmed

Transactions == 1..TxnsMax
Connections == 1..ConnectionsMax
Coordinators == 1..CoordinatorsMax
Brokers == {0, 1}
Host(epoch) == epoch % 2

VARIABLES
    client,     \* its memory
    requests,   \* per connection: the one under way to a coordinator, or Nothing
    ends,       \* per connection: the broker at its other end, and the coordinator epoch of its time
    batches,    \* sent to leaders, whoever they are by then; each may arrive again and again
    asked,      \* per transaction: the partitions of the commit that was asked for
    told,       \* per transaction: what the client was told of its end
    decided,    \* the durable record of the transactional id
    coordinator,\* epoch of the present one
    newest,     \* per coordinator: the newest connection it has heard
    known,      \* per coordinator that was taken over: the record as it knew it
    confirmed,  \* partitions whose marker the present coordinator knows to be confirmed
    done,       \* whether it takes the record for complete, which is not durable
    session,    \* of the present coordinator
    markers,    \* under way to leaders
    heard,      \* per broker: <<coordinator epoch, session>> of the newest that spoke
    leader,     \* per partition: the leader's epoch
    log,        \* per partition
    high,       \* per partition: the length of the log's confirmed prefix
    before,     \* per partition: the length of the log when the present leader took over
    guard,      \* per partition: a held batch that a coordinator has vouched for, or Nothing
    parked,     \* markers appended, and not yet confirmed
    late        \* whether a batch was appended of an epoch below the client's latest first one

vars == <<client, requests, ends, batches, asked, told, decided, coordinator, newest, known,
          confirmed, done, session, markers, heard, leader, log, high, before, guard, parked, late>>

clientVars == <<client, requests, ends, asked, told>>
deciderVars == <<decided, coordinator, newest, known, confirmed, done, session>>
leaderVars == <<heard, leader, log, high, before, guard, parked, late>>

Init ==
    /\ client = [phase |-> "ready", epoch |-> 0, first |-> 0, txn |-> 0, added |-> {}, sent |-> {},
                 acked |-> {}, connection |-> 1, waits |-> Nothing, bump |-> FALSE]
    /\ requests = [k \in Connections |-> Nothing]
    /\ ends = [k \in Connections |-> [at |-> 1, since |-> 1]]
    /\ batches = {}
    /\ asked = [n \in Transactions |-> {}]
    /\ told = [n \in Transactions |-> "nothing"]
    /\ decided = [state |-> "Empty", epoch |-> 0, last |-> 0, parts |-> {}]
    /\ coordinator = 1
    /\ newest = [e \in Coordinators |-> 0]
    /\ known = [e \in Coordinators |-> Nothing]
    /\ confirmed = {}
    /\ done = FALSE
    /\ session = 1
    /\ markers = {}
    /\ heard = [b \in Brokers |-> <<0, 0>>]
    /\ leader = [p \in Partitions |-> 1]
    /\ log = [p \in Partitions |-> <<>>]
    /\ high = [p \in Partitions |-> 0]
    /\ before = [p \in Partitions |-> 0]
    /\ guard = [p \in Partitions |-> Nothing]
    /\ parked = {}
    /\ late = FALSE

---------------------------------------------------------------------------
(* What a leader knows is the fold of its log.                             *)

IsData(entry) == entry.kind = "data"
EpochIn(l) == IF l = <<>> THEN 0 ELSE l[Len(l)].epoch
IsOpen(l) == l # <<>> /\ IsData(l[Len(l)])
NextSequence(l, epoch) == Cardinality({i \in 1..Len(l) : IsData(l[i]) /\ l[i].epoch = epoch})
MaxOf(S) == IF S = {} THEN 0 ELSE CHOOSE m \in S : \A n \in S : n <= m
CoordinatorIn(l) == MaxOf({l[i].coordinator : i \in {j \in 1..Len(l) : ~IsData(l[j])}})
Kept(p) == SubSeq(log[p], 1, high[p])
Moves == Cardinality({<<p, e>> \in Partitions \X (2..(MovesMax + 1)) : e <= leader[p]})

Prepared(state) == state \in {"PrepareCommit", "PrepareAbort"}
Prepare(result) == IF result = "commit" THEN "PrepareCommit" ELSE "PrepareAbort"
Complete(result) == IF result = "commit" THEN "CompleteCommit" ELSE "CompleteAbort"
Result(state) == IF state \in {"PrepareCommit", "CompleteCommit"} THEN "commit" ELSE "abort"

\* COMPLETE-LATER: what the present coordinator holds requests against. Complete* follows from what is
\* durable and from the markers, and becomes durable with what comes next, or alone.
Seen == IF done THEN [decided EXCEPT !.state = Complete(Result(decided.state)), !.parts = {}] ELSE decided

---------------------------------------------------------------------------
(* The client: one request to the coordinator at a time. When no answer    *)
(* comes it asks again over a new connection, and the old one may still    *)
(* deliver.                                                                *)

Request(r) ==
    /\ client.waits = Nothing
    /\ requests' = [requests EXCEPT ![client.connection] = r]

Began(c) == IF c.phase = "open" THEN c
            ELSE [c EXCEPT !.phase = "open", !.txn = @ + 1, !.added = {}, !.sent = {}, !.acked = {}]

MaySend == \/ client.phase = "open"
           \/ client.phase = "ready" /\ client.txn < TxnsMax /\ ~client.bump

SendAdd(p) ==
    /\ ~Tv2
    /\ MaySend
    /\ p \notin Began(client).added
    /\ LET r == [kind |-> "add", epoch |-> client.epoch, what |-> p] IN
        /\ Request(r)
        /\ client' = [Began(client) EXCEPT !.waits = r]
    /\ UNCHANGED <<ends, asked, told, batches, deciderVars, markers, leaderVars>>

SendBatch(p) ==
    /\ MaySend
    /\ client.waits = Nothing
    /\ LET c == Began(client) IN
        /\ Tv2 \/ p \in c.added
        /\ p \notin c.sent
        /\ client' = [c EXCEPT !.sent = @ \cup {p}]
        /\ batches' = batches \cup
            {[p |-> p, epoch |-> c.epoch, txn |-> c.txn,
              sequence |-> Cardinality({b \in batches : b.p = p /\ b.epoch = c.epoch})]}
    /\ UNCHANGED <<requests, ends, asked, told, deciderVars, markers, leaderVars>>

\* A batch is acknowledged when it is confirmed.
Acknowledge(p) ==
    /\ client.phase = "open"
    /\ p \in client.sent \ client.acked
    /\ \E i \in 1..high[p] : IsData(log[p][i]) /\ log[p][i].txn = client.txn
    /\ client' = [client EXCEPT !.acked = @ \cup {p}]
    /\ UNCHANGED <<requests, ends, asked, told, batches, deciderVars, markers, leaderVars>>

\* A commit waits for every batch. Who gives one up aborts, and in TV1 asks for a new epoch then.
SendEnd(result) ==
    /\ client.phase = "open"
    /\ IF result = "commit" THEN client.sent # {} /\ client.acked = client.sent
       ELSE client.sent # {} \/ ~Tv2
    /\ LET r == [kind |-> "end", epoch |-> client.epoch, what |-> result] IN
        /\ Request(r)
        /\ client' = [client EXCEPT !.waits = r, !.bump = ~Tv2 /\ client.acked # client.sent]
    /\ asked' = IF result = "commit" THEN [asked EXCEPT ![client.txn] = client.sent] ELSE asked
    /\ UNCHANGED <<ends, told, batches, deciderVars, markers, leaderVars>>

\* An epoch that the model does not have is not asked for: the answer would never come.
SendBump ==
    /\ client.phase = "ready"
    /\ client.bump
    /\ client.epoch < EpochsMax
    /\ LET r == [kind |-> "init", epoch |-> client.epoch, what |-> "bump"] IN
        /\ Request(r)
        /\ client' = [client EXCEPT !.waits = r]
    /\ UNCHANGED <<ends, asked, told, batches, deciderVars, markers, leaderVars>>

\* It may be told a wrong broker, or one that does not know yet that it is the wrong one.
Connect(r, at) ==
    /\ client.connection < ConnectionsMax
    /\ coordinator >= BreaksFrom
    /\ at \in {Host(epoch) : epoch \in Coordinators}
    /\ ends' = [ends EXCEPT ![client.connection + 1] = [at |-> at, since |-> coordinator]]
    /\ requests' = [requests EXCEPT ![client.connection + 1] = r]

Reconnect(at) ==
    /\ client.waits # Nothing
    /\ Connect(client.waits, at)
    /\ client' = [client EXCEPT !.connection = @ + 1]
    /\ UNCHANGED <<asked, told, batches, deciderVars, markers, leaderVars>>

\* A new instance knows nothing of what the one before it did.
Restart ==
    /\ client.txn > 0
    /\ decided.epoch < EpochsMax
    /\ LET r == [kind |-> "init", epoch |-> 0, what |-> "new"] IN
        /\ Connect(r, Host(coordinator))
        /\ client' = [client EXCEPT !.phase = "ready", !.epoch = 0, !.added = {}, !.sent = {},
                                    !.acked = {}, !.connection = @ + 1, !.waits = r,
                                    !.bump = FALSE]
    /\ UNCHANGED <<asked, told, batches, deciderVars, markers, leaderVars>>

---------------------------------------------------------------------------
(* The coordinator's answers, as they reach the client or get lost.        *)

Hears(k, answered) == answered /\ client.waits # Nothing /\ client.connection = k

Answered(k, answered, c) == client' = IF Hears(k, answered) THEN [c EXCEPT !.waits = Nothing] ELSE client

\* What is durable is the record `d` from now on; the request is done with.
Decide(k, d) ==
    /\ decided' = d
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ confirmed' = IF Prepared(d.state) THEN confirmed ELSE {}
    /\ newest' = [newest EXCEPT ![coordinator] = IF k > @ THEN k ELSE @]
    /\ done' = FALSE
    /\ UNCHANGED <<ends, coordinator, known, session>>

\* What is answered is durable already, or follows from what is.
Repeat(k) ==
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ newest' = [newest EXCEPT ![coordinator] = IF k > @ THEN k ELSE @]
    /\ UNCHANGED <<ends, decided, coordinator, known, confirmed, done, session>>

Fenced(k) ==
    /\ client.waits # Nothing
    /\ client.connection = k
    /\ client' = [client EXCEPT !.phase = "fenced", !.waits = Nothing]
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ UNCHANGED <<ends, asked, told, deciderVars>>

HandleAdd(k, r, answered) ==
    /\ r.epoch = Seen.epoch
    /\ ~Prepared(Seen.state)
    /\ Decide(k, [Seen EXCEPT !.state = "Ongoing", !.parts =
                    (IF Seen.state = "Ongoing" THEN @ ELSE {}) \cup {r.what}])
    /\ Answered(k, answered, [client EXCEPT !.added = @ \cup {r.what}])
    /\ UNCHANGED <<asked, told>>

Ended(result, epoch) == [client EXCEPT !.phase = "ready", !.epoch = epoch]

Tell(k, answered, result) ==
    told' = IF Hears(k, answered) THEN [told EXCEPT ![client.txn] = result] ELSE told

HandleEnd(k, r, answered) ==
    LET same == Seen.state = Complete(r.what)
        next == IF Tv2 THEN r.epoch + 1 ELSE r.epoch
        again == Tv2 /\ Seen.epoch = r.epoch + 1 IN
    \/ /\ Seen.state = "Ongoing"
       /\ r.epoch = Seen.epoch
       /\ next <= EpochsMax
       /\ Decide(k, [Seen EXCEPT !.state = Prepare(r.what), !.epoch = next])
       /\ Answered(k, answered, Ended(r.what, next))
       /\ Tell(k, answered, r.what)
       /\ UNCHANGED <<asked>>
    \/ /\ IF Tv2 THEN again /\ same ELSE r.epoch = Seen.epoch /\ same
       /\ IF Tv2 THEN Repeat(k) ELSE Decide(k, Seen)
       /\ Answered(k, answered, Ended(r.what, next))
       /\ Tell(k, answered, r.what)
       /\ UNCHANGED <<asked>>
    \/ /\ Tv2                               \* nothing was added: only the epoch ends
       /\ r.what = "abort"
       /\ r.epoch = Seen.epoch
       /\ Seen.state \in {"Empty", "CompleteCommit", "CompleteAbort"}
       /\ next <= EpochsMax
       /\ Decide(k, [Seen EXCEPT !.state = "CompleteAbort", !.epoch = next])
       /\ Answered(k, answered, Ended(r.what, next))
       /\ Tell(k, answered, r.what)
       /\ UNCHANGED <<asked>>
    \/ /\ ~Tv2                              \* INVALID_TXN_STATE
       /\ r.epoch = Seen.epoch
       /\ ~same
       /\ Seen.state \in {"Empty", "CompleteCommit", "CompleteAbort"}
       /\ Fenced(k)

\* `what` is "new" for a new instance, "bump" for the same one that wants a new epoch.
HandleInit(k, r, answered) ==
    LET next == Seen.epoch + 1
        known_ == r.what = "new" \/ r.epoch = Seen.epoch IN
    \/ /\ Seen.state = "Ongoing"         \* fenced first; the answer is "ask again"
       /\ known_
       /\ next <= EpochsMax
       /\ decided' = [Seen EXCEPT !.state = "PrepareAbort", !.epoch = next]
       /\ confirmed' = {}
       /\ newest' = [newest EXCEPT ![coordinator] = IF k > @ THEN k ELSE @]
       /\ UNCHANGED <<clientVars, coordinator, known, done, session>>
    \/ /\ Seen.state \in {"Empty", "CompleteCommit", "CompleteAbort"}
       /\ known_
       /\ next <= EpochsMax
       /\ Decide(k, [Seen EXCEPT !.state = "Empty", !.epoch = next,
                                    !.last = IF r.what = "new" THEN 0 ELSE Seen.epoch])
       /\ Answered(k, answered, [client EXCEPT !.epoch = next, !.first = next, !.bump = FALSE])
       /\ UNCHANGED <<asked, told>>
    \/ /\ r.what = "bump"                   \* the answer was lost
       /\ Seen.state = "Empty"
       /\ Seen.epoch > 0
       /\ r.epoch = Seen.last
       /\ r.epoch # Seen.epoch
       /\ Decide(k, Seen)
       /\ Answered(k, answered, [client EXCEPT !.epoch = Seen.epoch, !.first = Seen.epoch,
                                               !.bump = FALSE])
       /\ UNCHANGED <<asked, told>>

IsStale(r) ==   \* an epoch that was fenced: answered so on any connection
    CASE r.kind = "init" -> r.what = "bump" /\ r.epoch # Seen.epoch /\ r.epoch # Seen.last
      [] r.kind = "end" /\ Tv2 /\ Seen.epoch = r.epoch + 1 ->
            Seen.state \notin {Prepare(r.what), Complete(r.what)}
      [] OTHER -> r.epoch < Seen.epoch

Handle(k, answered) ==
    LET r == requests[k] IN
    /\ r # Nothing
    /\ ends[k].at = Host(coordinator)
    /\ IF IsStale(r) THEN answered /\ Fenced(k)
       ELSE /\ FreshLeader => ends[k].since >= coordinator
            /\ OldConnection => k >= newest[coordinator]
            /\ answered \/ client.connection = k
            /\ CASE r.kind = "add" -> HandleAdd(k, r, answered)
                 [] r.kind = "end" -> HandleEnd(k, r, answered)
                 [] OTHER -> HandleInit(k, r, answered)
    /\ UNCHANGED <<batches, markers, leaderVars>>

\* The client was away for too long.
TimeOut ==
    /\ decided.state = "Ongoing"
    /\ FenceFirst => decided.epoch < EpochsMax
    /\ decided' = [decided EXCEPT !.state = "PrepareAbort", !.epoch = @ + IF FenceFirst THEN 1 ELSE 0]
    /\ confirmed' = {}
    /\ UNCHANGED <<clientVars, batches, coordinator, newest, known, done, session, markers, leaderVars>>

---------------------------------------------------------------------------
(* The coordinator's markers, and its end.                                 *)

MarkerOf(p, d, by, over, to) ==
    [p |-> p, coordinator |-> by, session |-> over, leader |-> to, epoch |-> d.epoch,
     result |-> Result(d.state)]

\* Leaders are looked up, in metadata that may be behind by one. One per partition and session.
SendMarker(p, to) ==
    /\ Prepared(Seen.state)
    /\ p \in Seen.parts \ confirmed
    /\ to \in {leader[p], leader[p] - 1} \ {0}
    /\ \A m \in markers \cup parked : m.p = p => <<m.coordinator, m.session>> # <<coordinator, session>>
    /\ markers' = markers \cup {MarkerOf(p, decided, coordinator, session, to)}
    /\ UNCHANGED <<clientVars, batches, deciderVars, leaderVars>>

NewSession ==
    /\ session < SessionsMax
    /\ \E m \in markers : m.coordinator = coordinator /\ m.session = session
    /\ session' = session + 1
    /\ UNCHANGED <<clientVars, batches, decided, coordinator, newest, known, confirmed, done, markers, leaderVars>>

\* Every marker is confirmed.
MarkAll ==
    /\ Prepared(Seen.state)
    /\ IF CompleteLast THEN confirmed = decided.parts ELSE TRUE
    /\ done' = TRUE
    /\ UNCHANGED <<clientVars, batches, decided, coordinator, newest, known, confirmed, session,
                   markers, leaderVars>>

CompleteAll ==
    /\ done
    /\ decided' = Seen
    /\ confirmed' = {}
    /\ done' = FALSE
    /\ UNCHANGED <<clientVars, batches, coordinator, newest, known, session, markers, leaderVars>>

Succeed ==
    /\ coordinator < CoordinatorsMax
    /\ coordinator' = coordinator + 1
    /\ known' = IF Zombies THEN [known EXCEPT ![coordinator] = Seen] ELSE known
    /\ newest' = IF Zombies THEN newest ELSE [newest EXCEPT ![coordinator] = 0]
    /\ confirmed' = {}
    /\ done' = FALSE
    /\ session' = 1

TakeOverCoordinator ==
    /\ Succeed
    /\ UNCHANGED <<clientVars, batches, decided, markers, leaderVars>>

\* Without DECIDE-FIRST: the answer and a marker leave, and then the decision is lost.
LoseDecision(k, answered) ==
    LET r == requests[k] IN
    /\ ~DecideFirst
    /\ r # Nothing
    /\ ends[k].at = Host(coordinator)
    /\ r.kind = "end"
    /\ r.epoch = decided.epoch
    /\ decided.state = "Ongoing"
    /\ LET d == [decided EXCEPT !.state = Prepare(r.what), !.epoch = @ + IF Tv2 THEN 1 ELSE 0] IN
        /\ \E S \in SUBSET decided.parts :
            markers' = markers \cup {MarkerOf(p, d, coordinator, session, leader[p]) : p \in S}
        /\ Answered(k, answered, Ended(r.what, d.epoch))
    /\ Tell(k, answered, r.what)
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ Succeed
    /\ UNCHANGED <<ends, asked, batches, decided, leaderVars>>

\* One that was taken over can make nothing durable. It still sends markers for what it knows to be
\* decided, and answers what needs no record.
ZombieMarker(e, p) ==
    /\ known[e] # Nothing
    /\ Prepared(known[e].state)
    /\ p \in known[e].parts
    /\ markers' = markers \cup {MarkerOf(p, known[e], e, SessionsMax + 1, leader[p])}
    /\ UNCHANGED <<clientVars, batches, deciderVars, leaderVars>>

\* TV1: complete with that result, so this must be a retry.
ZombieEnd(e, k) ==
    LET r == requests[k] IN
    /\ ~ProvenRetry
    /\ ~Tv2
    /\ known[e] # Nothing
    /\ r # Nothing
    /\ r.kind = "end"
    /\ ends[k].at = Host(e)
    /\ e + 2 > coordinator
    /\ r.epoch = known[e].epoch
    /\ known[e].state = Complete(r.what)
    /\ Hears(k, TRUE)
    /\ Answered(k, TRUE, Ended(r.what, r.epoch))
    /\ Tell(k, TRUE, r.what)
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ UNCHANGED <<ends, asked, batches, deciderVars, markers, leaderVars>>

\* TV1: open, and it has that partition.
ZombieAdd(e, k) ==
    LET r == requests[k] IN
    /\ ~ProvenAdd
    /\ known[e] # Nothing
    /\ r # Nothing
    /\ r.kind = "add"
    /\ ends[k].at = Host(e)
    /\ e + 2 > coordinator
    /\ r.epoch = known[e].epoch
    /\ known[e].state = "Ongoing"
    /\ r.what \in known[e].parts
    /\ Hears(k, TRUE)
    /\ Answered(k, TRUE, [client EXCEPT !.added = @ \cup {r.what}])
    /\ requests' = [requests EXCEPT ![k] = Nothing]
    /\ UNCHANGED <<ends, asked, told, batches, deciderVars, markers, leaderVars>>

\* There is nothing to end, or it is of another epoch than the last one that it knows.
ZombieRefuse(e, k) ==
    LET r == requests[k] IN
    /\ ~ProvenRefusal
    /\ known[e] # Nothing
    /\ r # Nothing
    /\ ends[k].at = Host(e)
    /\ e + 2 > coordinator
    /\ \/ r.what # "new" /\ r.epoch # known[e].epoch /\ ~(Tv2 /\ known[e].epoch = r.epoch + 1)
       \/ /\ ~Tv2
          /\ r.kind = "end"
          /\ known[e].state \in {"Empty", "CompleteCommit", "CompleteAbort"} \ {Complete(r.what)}
    /\ Hears(k, TRUE)
    /\ Fenced(k)
    /\ UNCHANGED <<batches, markers, leaderVars>>

---------------------------------------------------------------------------
(* Partitions: batches.                                                    *)

Append_(p, entry) ==
    /\ log' = [log EXCEPT ![p] = Append(@, entry)]
    /\ high' = IF Lag THEN high ELSE [high EXCEPT ![p] = Len(log[p]) + 1]

AppendBatch(b) ==
    /\ Append_(b.p, [kind |-> "data", epoch |-> b.epoch, txn |-> b.txn])
    /\ late' = (late \/ b.epoch < client.first)

Fits(b) ==
    /\ b.epoch >= EpochIn(log[b.p])
    /\ b.sequence = NextSequence(log[b.p], b.epoch)

\* A transaction of this epoch is open, or nobody asks.
AcceptBatch(b) ==
    /\ guard[b.p] = Nothing
    /\ Fits(b)
    /\ Verify => IsOpen(log[b.p]) /\ EpochIn(log[b.p]) = b.epoch
    /\ AppendBatch(b)
    /\ UNCHANGED <<clientVars, batches, deciderVars, markers, heard, leader, before, guard, parked>>

\* Held, and vouched for: by the present coordinator, which in TV2 adds the partition, ...
HoldBatch(b) ==
    /\ Verify
    /\ guard[b.p] = Nothing
    /\ Fits(b)
    /\ ~(IsOpen(log[b.p]) /\ EpochIn(log[b.p]) = b.epoch)
    /\ b.epoch = Seen.epoch
    /\ IF Tv2
       THEN /\ ~Prepared(Seen.state)
            /\ decided' = [Seen EXCEPT !.state = "Ongoing", !.parts =
                            (IF Seen.state = "Ongoing" THEN @ ELSE {}) \cup {b.p}]
            /\ confirmed' = {}
            /\ done' = FALSE
       ELSE /\ Seen.state = "Ongoing"
            /\ b.p \in Seen.parts
            /\ UNCHANGED <<decided, confirmed, done>>
    /\ guard' = [guard EXCEPT ![b.p] = [batch |-> b, by |-> coordinator]]
    /\ UNCHANGED <<clientVars, batches, coordinator, newest, known, session, markers,
                   heard, leader, log, high, before, parked, late>>

\* ... or by one that was taken over and finds it among what it knows.
HoldBatchByZombie(e, b) ==
    /\ Verify
    /\ guard[b.p] = Nothing
    /\ Fits(b)
    /\ ~(IsOpen(log[b.p]) /\ EpochIn(log[b.p]) = b.epoch)
    /\ known[e] # Nothing
    /\ known[e].state = "Ongoing"
    /\ known[e].epoch = b.epoch
    /\ b.p \in known[e].parts
    /\ guard' = [guard EXCEPT ![b.p] = [batch |-> b, by |-> e]]
    /\ UNCHANGED <<clientVars, batches, deciderVars, markers, heard, leader, log, high, before, parked, late>>

\* The answer arrives.
AcceptHeld(p) ==
    /\ guard[p] # Nothing
    /\ guard' = [guard EXCEPT ![p] = Nothing]
    /\ IF Fits(guard[p].batch) /\ (CoordinatorAsked => guard[p].by >= CoordinatorIn(log[p]))
       THEN AppendBatch(guard[p].batch) ELSE UNCHANGED <<log, high, late>>
    /\ UNCHANGED <<clientVars, batches, deciderVars, markers, heard, leader, before, parked>>

---------------------------------------------------------------------------
(* Partitions: markers, confirmation, takeover.                            *)

\* What a leader does with a marker that passed all checks: close, write without closing, or nothing.
Closes(l, m) == IsOpen(l) /\ (IF Tv2 /\ MarkerOnce THEN m.epoch > EpochIn(l) ELSE m.epoch >= EpochIn(l))
Writes(l, m) ==
    \/ Closes(l, m)
    \/ ~IsOpen(l) /\ (\/ m.epoch > EpochIn(l) \/ l = <<>>
                      \/ ~MarkerOnce
                      \/ CoordinatorKept /\ m.epoch = EpochIn(l) /\ m.coordinator > CoordinatorIn(l))

Voids(m, held) == IF Tv2 \/ ~GuardOwn THEN m.epoch > held.batch.epoch ELSE m.epoch >= held.batch.epoch

NotOlder(x, y) == x[1] > y[1] \/ (x[1] = y[1] /\ x[2] >= y[2])

\* The answer arrives, or its session breaks.
Confirms(m, answered) ==
    IF m.coordinator # coordinator \/ ~Prepared(Seen.state)
    THEN UNCHANGED <<confirmed, session>>
    ELSE IF answered /\ m.session = session
    THEN confirmed' = confirmed \cup {m.p} /\ UNCHANGED session
    ELSE /\ UNCHANGED confirmed
         /\ session' = IF m.session = session THEN session + 1 ELSE session

MayBreak(m, answered) ==
    answered \/ (m.coordinator = coordinator /\ m.session = session /\ session < SessionsMax
                    /\ Prepared(Seen.state))

DeliverMarker(m, answered) ==
    LET p == m.p
        at == Host(m.leader) IN
    /\ IF MarkerAddress THEN m.leader = leader[p] ELSE at = Host(leader[p])
    /\ Channel => NotOlder(<<m.coordinator, m.session>>, heard[at])
    /\ markers' = markers \ {m}
    /\ heard' = [heard EXCEPT ![at] = IF NotOlder(@, <<m.coordinator, m.session>>) THEN @
                                      ELSE <<m.coordinator, m.session>>]
    /\ IF CoordinatorFenced /\ m.coordinator < CoordinatorIn(log[p])     \* TRANSACTION_COORDINATOR_FENCED
       THEN /\ answered
            /\ UNCHANGED <<confirmed, session, log, high, guard, parked>>
       ELSE /\ guard' = IF Guard /\ guard[p] # Nothing /\ Voids(m, guard[p])
                       THEN [guard EXCEPT ![p] = Nothing] ELSE guard
            /\ IF Writes(log[p], m)
               THEN Append_(p, [kind |-> m.result, epoch |-> m.epoch, coordinator |-> m.coordinator])
               ELSE UNCHANGED <<log, high>>
            /\ IF Lag
               THEN /\ answered
                    /\ parked' = parked \cup {m}
                    /\ UNCHANGED <<confirmed, session>>
               ELSE /\ MayBreak(m, answered)
                    /\ Confirms(m, answered)
                    /\ UNCHANGED parked
    /\ UNCHANGED <<clientVars, batches, decided, coordinator, newest, known, done, leader, before, late>>

\* FENCED_LEADER_EPOCH: the coordinator looks again.
RefuseMarker(m) ==
    /\ m.leader # leader[m.p]
    /\ m.coordinator = coordinator
    /\ m.session = session
    /\ markers' = markers \ {m}
    /\ UNCHANGED <<clientVars, batches, deciderVars, leaderVars>>

\* A leader that was taken over, and finds in its own log that there is nothing to do.
ZombieDone(m) ==
    /\ ~ProvenDone
    /\ m.leader + 1 = leader[m.p]
    /\ m.coordinator = coordinator
    /\ m.session = session
    /\ Prepared(Seen.state)
    /\ LET l == SubSeq(log[m.p], 1, before[m.p]) IN ~Closes(l, m) /\ ~Writes(l, m)
    /\ markers' = markers \ {m}
    /\ confirmed' = confirmed \cup {m.p}
    /\ UNCHANGED <<clientVars, batches, decided, coordinator, newest, known, done, session, leaderVars>>

\* All that was appended is confirmed, and answered.
Confirm(p, answered) ==
    /\ high[p] < Len(log[p]) \/ \E m \in parked : m.p = p
    /\ high' = [high EXCEPT ![p] = Len(log[p])]
    /\ LET mine == {m \in parked : m.p = p}
           ours == {m \in mine : m.coordinator = coordinator /\ m.session = session} IN
        /\ parked' = parked \ mine
        /\ IF ours = {} THEN answered /\ UNCHANGED <<confirmed, session>>
           ELSE LET m == CHOOSE x \in ours : TRUE IN
                MayBreak(m, answered) /\ Confirms(m, answered)
    /\ UNCHANGED <<clientVars, batches, decided, coordinator, newest, known, done, markers, heard, leader,
                   log, before, guard, late>>

TakeOver(p) ==
    /\ Moves < MovesMax
    /\ leader' = [leader EXCEPT ![p] = @ + 1]
    /\ \E kept \in high[p]..Len(log[p]) :
        /\ log' = [log EXCEPT ![p] = SubSeq(@, 1, kept)]
        /\ high' = [high EXCEPT ![p] = kept]
        /\ before' = [before EXCEPT ![p] = kept]
    /\ guard' = [guard EXCEPT ![p] = Nothing]
    /\ parked' = {m \in parked : m.p # p}
    /\ LET at == Host(leader[p] + 1) IN     \* a broker that has restarted leads nothing else
        \/ UNCHANGED heard
        \/ /\ \A q \in Partitions \ {p} : Host(leader[q]) # at
           /\ heard' = [heard EXCEPT ![at] = <<0, 0>>]
    /\ UNCHANGED <<clientVars, batches, deciderVars, markers, late>>

Next ==
    \/ \E p \in Partitions :
        \/ SendAdd(p) \/ SendBatch(p) \/ Acknowledge(p) \/ AcceptHeld(p) \/ TakeOver(p)
        \/ \E to \in 1..(MovesMax + 1) : SendMarker(p, to)
        \/ \E answered \in BOOLEAN : Confirm(p, answered)
        \/ \E e \in Coordinators : ZombieMarker(e, p)
    \/ \E result \in {"commit", "abort"} : SendEnd(result)
    \/ SendBump \/ Restart \/ TimeOut \/ NewSession \/ MarkAll \/ CompleteAll \/ TakeOverCoordinator
    \/ \E at \in Brokers : Reconnect(at)
    \/ \E k \in Connections : \E answered \in BOOLEAN :
        Handle(k, answered) \/ LoseDecision(k, answered)
    \/ \E k \in Connections : \E e \in Coordinators :
        ZombieEnd(e, k) \/ ZombieAdd(e, k) \/ ZombieRefuse(e, k)
    \/ \E b \in batches :
        \/ AcceptBatch(b) \/ HoldBatch(b)
        \/ \E e \in Coordinators : HoldBatchByZombie(e, b)
    \/ \E m \in markers :
        \/ \E answered \in BOOLEAN : DeliverMarker(m, answered)
        \/ RefuseMarker(m) \/ ZombieDone(m)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Partitions)

---------------------------------------------------------------------------
(* What must hold.                                                         *)

TypeOK ==
    /\ done => Prepared(decided.state)
    /\ decided.epoch \in 0..EpochsMax
    /\ \A p \in Partitions : before[p] <= high[p] /\ high[p] <= Len(log[p])
    /\ decided.state \in {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

\* How transaction n ended in a log, as read_committed shows it.
Outcome(l, n) ==
    LET at == {i \in 1..Len(l) : IsData(l[i]) /\ l[i].txn = n}
        after == {j \in 1..Len(l) : ~IsData(l[j]) /\ \E i \in at : i < j} IN
    IF at = {} THEN "none" ELSE IF after = {} THEN "open"
    ELSE l[CHOOSE j \in after : \A i \in after : j <= i].kind

InWork(p) == Prepared(Seen.state) /\ p \in decided.parts \ confirmed

IsCommitted(p, n) ==
    \/ Outcome(Kept(p), n) = "commit"
    \/ Outcome(Kept(p), n) = "open" /\ decided.state = "PrepareCommit" /\ InWork(p)

\* X1, X3: all of a transaction or nothing of it, and only what the client asked to commit.
AllOrNothing ==
    \A n \in Transactions : \A p \in Partitions :
        Outcome(Kept(p), n) = "commit" =>
            asked[n] # {} /\ \A q \in asked[n] : IsCommitted(q, n)

\* X2
AnsweredCommitStays == \A n \in Transactions : told[n] = "commit" => \A p \in asked[n] : IsCommitted(p, n)

\* X2
AnsweredAbortStays ==
    \A n \in Transactions : \A p \in Partitions : told[n] = "abort" => Outcome(Kept(p), n) # "commit"

\* X7
NothingOfAFencedEpoch ==
    /\ ~late
    /\ \A p \in Partitions : \A i, j \in 1..Len(log[p]) : i < j => log[p][i].epoch <= log[p][j].epoch

\* X12: who is told that it is over has a successor, or was ended for its silence.
FencedIsOver == client.phase = "fenced" => client.epoch < decided.epoch

\* X8: an open transaction is one that the coordinator knows and will end.
NothingHangs ==
    \A p \in Partitions : IsOpen(log[p]) =>
        (decided.state = "Ongoing" /\ p \in decided.parts) \/ InWork(p)

\* X10: every marker ends something, or is the first of its epoch, or of its coordinator.
MarkersOnce ==
    \A p \in Partitions : \A i \in 1..Len(log[p]) :
        LET l == SubSeq(log[p], 1, i - 1) IN
        IsData(log[p][i]) \/ l = <<>> \/ IsOpen(l) \/ log[p][i].epoch > EpochIn(l)
            \/ log[p][i].coordinator > CoordinatorIn(l)

\* X4: the last stable offset as the leader serves it, and how far it could be from the log alone.
FirstOpen(l, end) == IF IsOpen(l)
    THEN MaxOf({j \in 1..Len(l) : ~IsData(l[j])}) ELSE end
StableOffset(p) == IF Stable /\ FirstOpen(Kept(p), high[p]) < high[p]
    THEN FirstOpen(Kept(p), high[p]) ELSE IF FirstOpen(log[p], high[p]) < high[p] THEN FirstOpen(log[p], high[p]) ELSE high[p]
StableOffsetWaits == \A p \in Partitions : StableOffset(p) <= FirstOpen(Kept(p), high[p])
=============================================================================
