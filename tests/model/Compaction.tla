----------------------------- MODULE Compaction -----------------------------
(***************************************************************************)
(* Compacted segments take the place of old ones in a partition's list,    *)
(* while trims, rolls, takeovers and readers go on.                        *)
(*                                                                         *)
(* What this model is about: a cleaner works for long, on a list that it   *)
(* has read before; the broker it works for may be replaced meanwhile, and *)
(* not know; its compare-and-set may be answered late, or never. Readers   *)
(* go by the list that they have read, and go on in a ledger although the  *)
(* list names another one by now. Tombstones go, and with them the only    *)
(* hint that what somebody has read is no longer true.                     *)
(*                                                                         *)
(* A record is a number, its offset. One key is looked at: Values says     *)
(* which records are values of it, Tombstones which delete it; the others  *)
(* are of other keys, and stay. A ledger holds a set of records of the     *)
(* offsets that it stands for: a leader's all of them, a cleaner's what it *)
(* left. How a round chooses is one step: what it reads cannot change.     *)
(* A reader is never slower than tombstones are kept: a horizon passes     *)
(* only while nobody reads who has begun before.                           *)
(*                                                                         *)
(* Rules by their names in broker/TAKEOVER.md. Each constant below         *)
(* switches one off; TLC must then find a violation.                       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,        \* who may lead
    RecordsMax,     \* records ever written, a segment each
    Values,         \* which of them are values of the key
    Tombstones,     \* and which delete it
    LedgersMax,     \* ledgers ever created
    ChangesMax,     \* versions of the list
    CompactCas,     \* COMPACT-CAS: a swap is made only where the old segments still stand
    Version,        \* CAS: and only on the version that it began from
    KeepTail,       \* KEEP-TAIL: the last segment with records is not cleaned
    Grace,          \* GRACE: a ledger goes when nobody reads it any more
    Retire,         \* and is listed as retired until then
    SwapFirst,      \* LIST-THEN-DELETE: the old ledgers go after the swap
    Horizon,        \* HORIZON: a tombstone goes when its time is over
    Judged,         \* and if a complete round before has judged it
    NextSegment     \* NEXT-SEGMENT: a reader that finds nothing goes on in the next segment

Ledgers == 1..LedgersMax

VARIABLES
    list,       \* version, epoch, start; segments: [ledger, from, to]; retired ledgers
    content,    \* per ledger: the records in it; {} also if it was never made
    there,      \* ledgers that are there
    written,    \* records written so far
    created,
    broker,     \* per broker: its memory
    sets,       \* compare-and-sets under way
    over,       \* tombstones whose horizon is over
    judged,     \* tombstones that a complete round has judged
    reader      \* what it has read of the list, where it is, what it ends with

vars == <<list, content, there, written, created, broker, sets, over, judged, reader>>

FreshList == [version |-> 0, epoch |-> 0, start |-> 1, segments |-> <<>>, retired |-> {}]
FreshBroker == [phase |-> "idle", list |-> FreshList, wanted |-> FreshList, run |-> <<>>,
                new |-> [ledger |-> 0, from |-> 0, to |-> 0]]
FreshReader == [phase |-> "idle", segments |-> <<>>, at |-> 1, last |-> 0]

Init ==
    /\ list = FreshList
    /\ content = [l \in Ledgers |-> {}]
    /\ there = {}
    /\ written = 0
    /\ created = 0
    /\ broker = [b \in Brokers |-> FreshBroker]
    /\ sets = {}
    /\ over = {}
    /\ judged = {}
    /\ reader = FreshReader

Range(s) == {s[i] : i \in 1..Len(s)}
Key == Values \cup Tombstones
LedgersOf(segments) == {s.ledger : s \in Range(segments)}

---------------------------------------------------------------------------
(* The log: takeovers and appends, a segment for each record. A takeover   *)
(* changes nothing but version and epoch; what it recovers is              *)
(* LogRolling.tla's business.                                              *)

TakeOver(b) ==
    /\ broker[b].phase = "idle"
    /\ list.version < ChangesMax
    /\ list' = [list EXCEPT !.version = @ + 1, !.epoch = @ + 1]
    /\ sets' = IF Version THEN {} ELSE sets    \* all of them began from the version before
    /\ broker' = [broker EXCEPT ![b] = [FreshBroker EXCEPT !.phase = "leading", !.list = list']]
    /\ UNCHANGED <<content, there, written, created, over, judged, reader>>

\* Only the leader of the list's epoch gets acknowledgements.
IsLeader(b) == broker[b].phase \in {"leading", "cleaned"} /\ broker[b].list = list

Append_(b) ==
    LET record == written + 1
        segment == [ledger |-> created + 1, from |-> record, to |-> record] IN
    /\ IsLeader(b)
    /\ written < RecordsMax
    /\ created < LedgersMax
    /\ list.version < ChangesMax
    /\ written' = record
    /\ created' = created + 1
    /\ content' = [content EXCEPT ![created + 1] = {record}]
    /\ there' = there \cup {created + 1}
    /\ list' = [list EXCEPT !.version = @ + 1, !.segments = Append(@, segment)]
    /\ sets' = IF Version THEN {} ELSE sets
    /\ broker' = [broker EXCEPT ![b].list = list']
    /\ UNCHANGED <<over, judged, reader>>

Trim(b) ==
    /\ IsLeader(b)
    /\ Len(list.segments) > 1
    /\ list.version < ChangesMax
    /\ list' = [list EXCEPT !.version = @ + 1, !.segments = Tail(@), !.start = Head(list.segments).to + 1]
    /\ there' = there \ {Head(list.segments).ledger}
    /\ sets' = IF Version THEN {} ELSE sets
    /\ broker' = [broker EXCEPT ![b].list = list']
    \* Whoever reads what is trimmed is told that it is out of range, and starts over.
    /\ reader' = IF reader.phase = "reading" /\ reader.at <= Head(list.segments).to
                 THEN FreshReader ELSE reader
    /\ UNCHANGED <<content, written, created, over, judged>>

---------------------------------------------------------------------------
(* A round: from the oldest segment on, one group of it at a time. It is   *)
(* begun with what the broker knows of the list, however old that is.      *)

\* The newest record of the key below the end of what the round covers.
IsNewest(record, end) == \A r \in Key : r < end => r <= record

Stays(record, end) ==
    \/ record >= end
    \/ record \notin Key
    \/ /\ IsNewest(record, end)
       /\ \/ record \in Values
          \/ Horizon /\ record \notin over
          \/ Horizon /\ Judged /\ record \notin judged

\* Clean the first segments of the list as it is now: a new ledger, which nobody knows of.
Clean(b, count) ==
    LET me == broker[b]
        run == SubSeq(me.list.segments, 1, count)
        end == run[count].to + 1
        records == UNION {content[s.ledger] : s \in Range(run)}
        left == {r \in records : Stays(r, end)} IN
    /\ me.phase = "leading"
    /\ count <= Len(me.list.segments) - (IF KeepTail THEN 1 ELSE 0)
    /\ LedgersOf(run) \subseteq there
    /\ created < LedgersMax
    /\ left # records \/ \E r \in records \cap Tombstones : r \notin judged
    /\ created' = created + 1
    /\ content' = [content EXCEPT ![created + 1] = left]
    /\ there' = (there \cup {created + 1}) \ (IF SwapFirst THEN {} ELSE LedgersOf(run))
    /\ broker' = [broker EXCEPT ![b] = [me EXCEPT !.phase = "cleaned", !.run = run,
            !.new = [ledger |-> created + 1, from |-> run[1].from, to |-> run[count].to]]]
    /\ UNCHANGED <<list, written, sets, over, judged, reader>>

\* Have it listed where the old segments stand, in the list as the broker knows it by now.
Stands(segments, run) ==
    Len(run) <= Len(segments) /\ \A i \in 1..Len(run) : segments[i] = run[i]

Rest(segments, run) ==
    SelectSeq(segments, LAMBDA s : s \notin Range(run))

Swap(b) ==
    LET me == broker[b]
        wanted == [me.list EXCEPT
            !.version = @ + 1,
            !.segments = <<me.new>> \o Rest(@, me.run),
            !.retired = IF Retire THEN @ \cup LedgersOf(me.run) ELSE @] IN
    /\ me.phase = "cleaned"
    /\ me.list.version < ChangesMax
    /\ IF Stands(me.list.segments, me.run) \/ ~CompactCas
       THEN /\ sets' = sets \cup {[by |-> b, wanted |-> wanted, until |-> me.new.to]}
            /\ broker' = [broker EXCEPT ![b] = [me EXCEPT !.phase = "swapping", !.wanted = wanted]]
            /\ UNCHANGED there
       ELSE /\ broker' = [broker EXCEPT ![b] = [me EXCEPT !.phase = "leading"]]
            /\ there' = there \ {me.new.ledger}
            /\ UNCHANGED sets
    /\ UNCHANGED <<list, content, written, created, over, judged, reader>>

\* The store takes a set if the version is the expected one.
Apply(s) ==
    LET news == {r \in Tombstones \ judged : r <= s.until} IN
    /\ s.wanted.version = list.version + 1 \/ ~Version
    /\ list' = s.wanted
    /\ judged' = judged \cup news
    /\ over' = IF Judged THEN over \ news ELSE over    \* their horizon begins now
    /\ sets' = IF Version THEN {} ELSE sets \ {s}
    /\ UNCHANGED <<content, there, written, created, broker, reader>>

\* Answered, or read back.
Outcome(b) ==
    LET me == broker[b] IN
    /\ me.phase = "swapping"
    /\ \A s \in sets : s.by # b
    /\ IF list = me.wanted
       THEN /\ broker' = [broker EXCEPT ![b] = [FreshBroker EXCEPT !.phase = "leading", !.list = list]]
            /\ UNCHANGED there
       ELSE /\ broker' = [broker EXCEPT ![b] = FreshBroker]
            /\ there' = IF me.new.ledger \in LedgersOf(list.segments) \cup list.retired
                        THEN there ELSE there \ {me.new.ledger}
    /\ UNCHANGED <<list, content, written, created, sets, over, judged, reader>>

\* A replaced leader hears of it at last.
Resign(b) ==
    /\ broker[b].phase \in {"leading", "cleaned"}
    /\ broker[b].list # list
    /\ broker' = [broker EXCEPT ![b] = FreshBroker]
    /\ UNCHANGED <<list, content, there, written, created, sets, over, judged, reader>>

\* Let go of what was replaced, once nobody reads it.
Release(b) ==
    /\ IsLeader(b)
    /\ list.retired # {}
    /\ list.version < ChangesMax
    /\ Grace => LedgersOf(reader.segments) \cap list.retired = {}
    /\ list' = [list EXCEPT !.version = @ + 1, !.retired = {}]
    /\ there' = there \ list.retired
    /\ sets' = IF Version THEN {} ELSE sets
    /\ broker' = [broker EXCEPT ![b].list = list']
    /\ UNCHANGED <<content, written, created, over, judged, reader>>

\* Ledgers that no list names, made in an earlier epoch: nobody can list them any more.
Sweep(l) ==
    /\ l \in there
    /\ l \notin LedgersOf(list.segments) \cup list.retired
    /\ \A b \in Brokers : broker[b].new.ledger # l
    /\ there' = there \ {l}
    /\ UNCHANGED <<list, content, written, created, broker, sets, over, judged, reader>>

\* The delete horizon of a tombstone passes; no reader is as slow as that.
Expire(r) ==
    /\ r \in Tombstones \cap (1..written)
    /\ r \notin over
    /\ reader.phase = "idle"
    /\ over' = over \cup {r}
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, judged, reader>>

---------------------------------------------------------------------------
(* A reader reads the list once, and goes by it for a while; it may look   *)
(* anew at any time.                                                       *)

Begin ==
    /\ reader.phase = "idle"
    /\ list.segments # <<>>
    /\ reader' = [phase |-> "reading", segments |-> list.segments, at |-> list.start, last |-> 0]
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, over, judged>>

LookAgain ==
    /\ reader.phase = "reading"
    /\ reader.segments # list.segments
    /\ reader' = [reader EXCEPT !.segments = list.segments]
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, over, judged>>

\* The segment that stands for the reader's offset, by its list.
Here == CHOOSE s \in Range(reader.segments) : s.from <= reader.at /\ reader.at <= s.to
IsHere == \E s \in Range(reader.segments) : s.from <= reader.at /\ reader.at <= s.to

Step ==
    LET found == {r \in content[Here.ledger] : r >= reader.at} IN
    /\ reader.phase = "reading"
    /\ IsHere
    /\ Here.ledger \in there
    /\ found # {} \/ NextSegment
    /\ reader' = IF found = {} THEN [reader EXCEPT !.at = Here.to + 1]
                 ELSE LET r == CHOOSE x \in found : \A y \in found : x <= y
                      IN [reader EXCEPT !.at = r + 1, !.last = IF r \in Key THEN r ELSE @]
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, over, judged>>

\* It has come to the end of the log.
Finish ==
    /\ reader.phase = "reading"
    /\ reader.at = written + 1
    /\ reader' = [reader EXCEPT !.phase = "finished"]
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, over, judged>>

Again ==
    /\ reader.phase = "finished"
    /\ reader' = FreshReader
    /\ UNCHANGED <<list, content, there, written, created, broker, sets, over, judged>>

Next ==
    \/ \E b \in Brokers :
        TakeOver(b) \/ Append_(b) \/ Trim(b) \/ Swap(b) \/ Outcome(b) \/ Resign(b) \/ Release(b)
        \/ \E count \in 1..Len(broker[b].list.segments) : Clean(b, count)
    \/ \E s \in sets : Apply(s)
    \/ \E l \in there : Sweep(l)
    \/ \E r \in 1..written : Expire(r)
    \/ Begin \/ LookAgain \/ Step \/ Finish \/ Again

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Brokers)

---------------------------------------------------------------------------
TypeOK == created <= LedgersMax /\ list.version <= ChangesMax

\* Z7: what is listed is there.
ListedIsThere == LedgersOf(list.segments) \cup list.retired \subseteq there

\* Z6: the list continues itself, from the start to the end of the log.
ListIsWhole ==
    LET s == list.segments IN
    /\ s # <<>> => s[1].from = list.start /\ s[Len(s)].to = written
    /\ \A i \in 2..Len(s) : s[i].from = s[i - 1].to + 1

Last(set) == IF set = {} THEN 0 ELSE CHOOSE r \in set : \A x \in set : x <= r

\* Z1: the newest value of the key is there; and if a tombstone is gone, so is what it deletes.
NewestIsThere ==
    LET left == {r \in UNION {content[l] : l \in LedgersOf(list.segments)} : r >= list.start}
        truth == Last({r \in Key : list.start <= r /\ r <= written}) IN
    truth = 0 \/ truth \in left \/ (truth \in Tombstones /\ left \cap Key = {})

\* Z3, Z4: who has come to the end knows the newest value, or that there is none.
ReaderKnows ==
    LET truth == Last({r \in Key : r < reader.at}) IN
    (reader.phase = "finished" /\ truth >= list.start) =>
        reader.last = truth \/ (truth \in Tombstones /\ reader.last \notin Values)

\* Z8: nobody stands before a ledger that is gone, or a segment in which nothing is left.
ReaderGoesOn ==
    (reader.phase = "reading" /\ IsHere) =>
        /\ Here.ledger \in there
        /\ NextSegment \/ {r \in content[Here.ledger] : r >= reader.at} # {}

\* The log's last offset has a record: whoever waits for it gets there.
EndIsThere == written > 0 /\ list.segments # <<>> =>
    written \in content[list.segments[Len(list.segments)].ledger]
=============================================================================
