---------------------------- MODULE SegmentPages ----------------------------
(***************************************************************************)
(* The segment list of a partition when it does not fit one node: a head   *)
(* that changes by compare-and-set, and pages that are written once.       *)
(*                                                                         *)
(* What this model is about: a page is a node of its own, so a leader that *)
(* dies, or is replaced, or whose answers get lost, leaves pages that no   *)
(* head names; a create that nobody waits for any more may still happen;   *)
(* trims open the oldest page and delete it; and whoever asks "is this     *)
(* ledger listed?" has to know what is in pages.                           *)
(*                                                                         *)
(* A segment is a number here, that of its ledger. Whether it is sealed,   *)
(* and what is in it, is LogRolling.tla's business. A set is answered, or  *)
(* settled by reading back, as there. Pages have one level: an index page  *)
(* differs from a page of segments only in what it holds.                  *)
(*                                                                         *)
(* Rules by their names in broker/TAKEOVER.md. Each constant below         *)
(* switches one off; TLC must then find a violation.                       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,        \* who may lead
    LedgersMax,     \* ledgers ever created, so segments ever listed
    ChangesMax,     \* versions of the head
    PageSize,       \* segments of a page
    CrashesMax,     \* brokers that lose their memory
    PageFirst,      \* PAGE-FIRST: a page is there before the head names it
    PageName,       \* PAGE-NAME: a page's name is its writer's own
    PageDelete,     \* LIST-THEN-DELETE: a page goes after the head let it go
    PageSweep,      \* SWEEP: only pages of earlier epochs are orphans
    PageLook        \* PAGE-LOOK: who asks whether a ledger is listed looks into pages

Ledgers == 1..LedgersMax

VARIABLES
    head,       \* version, epoch, number of the next page; oldest \o pages \o newest is the list
    nodes,      \* pages that are there: [name, segments]
    creates,    \* creates under way: they happen once more, or never
    sets,       \* compare-and-sets under way
    ledgers,    \* ledgers that are there
    made,       \* per ledger: the epoch it was created for
    created,    \* ledgers created so far
    truth,      \* the list as those meant it who changed it
    broker,     \* per broker: its memory
    doomed,     \* pages that the sweep has found to be orphans
    crashes

vars == <<head, nodes, creates, sets, ledgers, made, created, truth, broker, doomed, crashes>>

FreshHead == [version |-> 0, epoch |-> 0, number |-> 1, oldest |-> <<>>, pages |-> <<>>, newest |-> <<>>]
FreshBroker == [phase |-> "idle", head |-> FreshHead, wanted |-> FreshHead, list |-> <<>>,
                ledger |-> 0, page |-> <<>>, gone |-> {}, dropped |-> {}]

Init ==
    /\ head = FreshHead
    /\ nodes = {}
    /\ creates = {}
    /\ sets = {}
    /\ ledgers = {}
    /\ made = [l \in Ledgers |-> 0]
    /\ created = 0
    /\ truth = <<>>
    /\ broker = [b \in Brokers |-> FreshBroker]
    /\ doomed = {}
    /\ crashes = 0

Last(s) == s[Len(s)]
Has(s, x) == \E i \in 1..Len(s) : s[i] = x
IsThere(name) == \E n \in nodes : n.name = name
Content(name) == IF IsThere(name) THEN (CHOOSE n \in nodes : n.name = name).segments ELSE <<>>

RECURSIVE Contents(_)
Contents(names) == IF names = <<>> THEN <<>> ELSE Content(Head(names)) \o Contents(Tail(names))
List(h) == h.oldest \o Contents(h.pages) \o h.newest

Listed(l) == IF PageLook THEN Has(List(head), l) ELSE Has(head.oldest \o head.newest, l)

\* The number is for order; epoch and ledger make the name its writer's own.
Name(number, epoch, ledger) ==
    IF PageName THEN <<number, epoch, ledger>> ELSE <<number, epoch, 0>>

---------------------------------------------------------------------------
(* A change of the list: create the page, if there is one, then send the   *)
(* set. A create is asked for until it is answered.                        *)

SetOf(b, wanted, list) == [by |-> b, head |-> wanted, list |-> list]

\* Add a ledger; what is more than a page goes into one. The last segment stays in the head.
Add(b, epoch) ==
    LET me == broker[b]
        h == me.head
        l == created + 1
        spills == Len(h.newest) > PageSize
        name == Name(h.number, epoch, l)
        wanted == [h EXCEPT
            !.version = @ + 1, !.epoch = epoch,
            !.number = IF spills THEN @ + 1 ELSE @,
            !.pages = IF spills THEN Append(@, name) ELSE @,
            !.newest = IF spills THEN Append(SubSeq(@, PageSize + 1, Len(@)), l) ELSE Append(@, l)]
        page == IF spills THEN SubSeq(h.newest, 1, PageSize) ELSE <<>> IN
    /\ created < LedgersMax
    /\ h.version < ChangesMax
    /\ created' = l
    /\ ledgers' = ledgers \cup {l}
    /\ made' = [made EXCEPT ![l] = epoch]
    /\ creates' = IF spills THEN creates \cup {[name |-> name, segments |-> page]} ELSE creates
    /\ sets' = IF spills /\ PageFirst THEN sets
               ELSE sets \cup {SetOf(b, wanted, Append(me.list, l))}
    /\ broker' = [broker EXCEPT ![b] = [me EXCEPT
            !.phase = IF spills /\ PageFirst THEN "writing" ELSE "setting",
            !.wanted = wanted, !.list = Append(@, l), !.ledger = l, !.page = name]]
    /\ UNCHANGED <<head, nodes, truth, doomed, crashes>>

\* The page is there, or one of its name: it is ours.
Written(b) ==
    /\ broker[b].phase = "writing"
    /\ IsThere(broker[b].page)
    /\ sets' = sets \cup {SetOf(b, broker[b].wanted, broker[b].list)}
    /\ broker' = [broker EXCEPT ![b].phase = "setting"]
    /\ UNCHANGED <<head, nodes, creates, ledgers, made, created, truth, doomed, crashes>>

\* A create reaches the store, the first time or again; whoever sent it may be gone.
Land(c) ==
    /\ ~IsThere(c.name)
    /\ nodes' = nodes \cup {c}
    /\ UNCHANGED <<head, creates, sets, ledgers, made, created, truth, broker, doomed, crashes>>

Apply(s) ==
    /\ s.head.version = head.version + 1
    /\ head' = s.head
    /\ truth' = s.list
    /\ sets' = {}    \* all of them began from the version before
    /\ UNCHANGED <<nodes, creates, ledgers, made, created, broker, doomed, crashes>>

\* Answered, or read back: our head, or somebody else's.
Outcome(b) ==
    LET me == broker[b] IN
    /\ me.phase = "setting"
    /\ head.version >= me.wanted.version
    /\ IF head = me.wanted
       THEN /\ broker' = [broker EXCEPT ![b] = [me EXCEPT
                    !.phase = "leading", !.head = me.wanted]]
            /\ UNCHANGED ledgers
       ELSE /\ broker' = [broker EXCEPT ![b] = FreshBroker]
            /\ ledgers' = IF me.ledger = 0 \/ Listed(me.ledger) THEN ledgers
                          ELSE ledgers \ {me.ledger}
    /\ UNCHANGED <<head, nodes, creates, sets, made, created, truth, doomed, crashes>>

---------------------------------------------------------------------------
(* Takeover, roll, trim                                                    *)

Read(b) ==
    /\ broker[b].phase = "idle"
    /\ broker' = [broker EXCEPT ![b] = [FreshBroker EXCEPT
            !.phase = "read", !.head = head, !.wanted = head, !.list = List(head)]]
    /\ UNCHANGED <<head, nodes, creates, sets, ledgers, made, created, truth, doomed, crashes>>

TakeOver(b) == broker[b].phase = "read" /\ Add(b, broker[b].head.epoch + 1)

IsIdle(b) == broker[b].phase = "leading" /\ broker[b].gone = {} /\ broker[b].dropped = {}

Roll(b) == IsIdle(b) /\ Add(b, broker[b].head.epoch)

\* Drop the oldest segment. If that is in a page, the page is opened: what is left of it moves into
\* the head.
Trim(b) ==
    LET me == broker[b]
        h == me.head
        opens == h.oldest = <<>> /\ h.pages # <<>>
        front == IF opens THEN Content(Head(h.pages)) ELSE h.oldest
        wanted == [h EXCEPT
            !.version = @ + 1,
            !.oldest = IF front # <<>> THEN Tail(front) ELSE <<>>,
            !.pages = IF opens THEN Tail(@) ELSE @,
            !.newest = IF front # <<>> THEN @ ELSE Tail(@)]
        gone == IF opens THEN {Head(h.pages)} ELSE {} IN
    /\ IsIdle(b)
    /\ opens => IsThere(Head(h.pages))
    /\ Len(me.list) > 1
    /\ h.version < ChangesMax
    /\ sets' = sets \cup {SetOf(b, wanted, Tail(me.list))}
    /\ nodes' = IF PageDelete THEN nodes ELSE {n \in nodes : n.name \notin gone}
    /\ broker' = [broker EXCEPT ![b] = [me EXCEPT
            !.phase = "setting", !.wanted = wanted, !.list = Tail(@), !.ledger = 0,
            !.gone = gone, !.dropped = {Head(me.list)}]]
    /\ UNCHANGED <<head, creates, ledgers, made, created, truth, doomed, crashes>>

\* The head let them go.
Delete(b) ==
    /\ broker[b].phase = "leading"
    /\ broker[b].gone # {} \/ broker[b].dropped # {}
    /\ nodes' = {n \in nodes : n.name \notin broker[b].gone}
    /\ ledgers' = ledgers \ broker[b].dropped
    /\ broker' = [broker EXCEPT ![b].gone = {}, ![b].dropped = {}]
    /\ UNCHANGED <<head, creates, sets, made, created, truth, doomed, crashes>>

Crash(b) ==
    /\ crashes < CrashesMax
    /\ broker[b].phase # "idle"
    /\ crashes' = crashes + 1
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<head, nodes, creates, sets, ledgers, made, created, truth, doomed>>

---------------------------------------------------------------------------
(* The sweep: finds what nobody can list any more, deletes it later.       *)

Find(n) ==
    /\ ~Has(head.pages, n.name)
    /\ PageSweep => n.name[2] < head.epoch
    /\ n.name \notin doomed
    /\ doomed' = doomed \cup {n.name}
    /\ UNCHANGED <<head, nodes, creates, sets, ledgers, made, created, truth, broker, crashes>>

Sweep(name) ==
    /\ nodes' = {n \in nodes : n.name # name}
    /\ doomed' = doomed \ {name}
    /\ UNCHANGED <<head, creates, sets, ledgers, made, created, truth, broker, crashes>>

SweepLedger(l) ==
    /\ ~Listed(l)
    /\ made[l] < head.epoch
    /\ ledgers' = ledgers \ {l}
    /\ UNCHANGED <<head, nodes, creates, sets, made, created, truth, broker, doomed, crashes>>

Next ==
    \/ \E b \in Brokers :
        Read(b) \/ TakeOver(b) \/ Roll(b) \/ Trim(b) \/ Written(b) \/ Outcome(b) \/ Delete(b) \/ Crash(b)
    \/ \E c \in creates : Land(c)
    \/ \E s \in sets : Apply(s)
    \/ \E n \in nodes : Find(n)
    \/ \E name \in doomed : Sweep(name)
    \/ \E l \in ledgers : SweepLedger(l)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Brokers)

---------------------------------------------------------------------------
TypeOK == created <= LedgersMax /\ head.version <= ChangesMax

\* C8: a page that the head names is there.
NamedPagesAreThere == \A i \in 1..Len(head.pages) : IsThere(head.pages[i])

\* C2, C3: head and pages say what those meant who changed the list.
NoSegmentIsLost == List(head) = truth

\* C7: a ledger that is listed is there.
ListedIsThere == \A i \in 1..Len(truth) : truth[i] \in ledgers
=============================================================================
