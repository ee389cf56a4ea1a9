// One step of the transactional tests with franz-go: `transactions STEP JSON`. Prints one line of
// JSON. The steps are those of ../java/Transactions.java.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type round struct {
	First  int   `json:"first"`
	End    int   `json:"end"`
	Commit bool  `json:"commit"`
	Offset int64 `json:"offset"`
}

type settings struct {
	Brokers    string  `json:"brokers"`
	Topic      string  `json:"topic"`
	ID         string  `json:"id"`
	Group      string  `json:"group"`
	Source     string  `json:"source"`
	Partitions int     `json:"partitions"`
	Rounds     []round `json:"rounds"`
	CA         string  `json:"ca"`
	User       string  `json:"user"`
	Password   string  `json:"password"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// secured returns how brokers want to be spoken to that want TLS and a login.
func (s settings) secured() []kgo.Opt {
	if s.User == "" {
		return nil
	}
	pem, err := os.ReadFile(s.CA)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	login := scram.Auth{User: s.User, Pass: s.Password}
	return []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),
		kgo.SASL(login.AsSha512Mechanism()),
	}
}

func (s settings) client(options ...kgo.Opt) *kgo.Client {
	seeds := kgo.SeedBrokers(strings.Split(s.Brokers, ",")...)
	client, err := kgo.NewClient(append(append(options, seeds), s.secured()...)...)
	check(err)
	return client
}

func (s settings) producer() *kgo.Client {
	return s.client(kgo.TransactionalID(s.ID), kgo.DefaultProduceTopic(s.Topic))
}

func send(ctx context.Context, client *kgo.Client, first, end int) error {
	var records []*kgo.Record
	for n := first; n < end; n++ {
		records = append(records, &kgo.Record{
			Key:   []byte(fmt.Sprintf("key-%d", n%20)),
			Value: []byte(fmt.Sprintf("value-%d", n)),
		})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func rounds(ctx context.Context, s settings) any {
	client := s.producer()
	defer client.Close()
	for _, one := range s.Rounds {
		check(client.BeginTransaction())
		check(send(ctx, client, one.First, one.End))
		if one.Offset >= 0 {
			check(commitOffset(ctx, client, s, one.Offset))
		}
		check(client.EndTransaction(ctx, kgo.TransactionEndTry(one.Commit)))
	}
	return true
}

// commitOffset commits an offset with the transaction; franz-go itself does so for members only.
func commitOffset(ctx context.Context, client *kgo.Client, s settings, offset int64) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = s.ID, id, epoch, s.Group
	added, err := add.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = s.Source, append(topic.Partitions, partition)
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = s.ID, id, epoch
	commit.Group, commit.Topics = s.Group, append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

// fenced lets a second client take the id of a first one that has a transaction open.
func fenced(ctx context.Context, s settings) any {
	first, second := s.producer(), s.producer()
	defer first.Close()
	defer second.Close()
	check(first.BeginTransaction())
	check(send(ctx, first, 0, 1))
	check(second.BeginTransaction())
	check(send(ctx, second, 1, 2))
	met := "nothing"
	if err := first.EndTransaction(ctx, kgo.TryCommit); err != nil {
		met = err.Error()
		var known *kerr.Error
		if errors.As(err, &known) {
			met = known.Message
		}
	}
	check(second.EndTransaction(ctx, kgo.TryCommit))
	return met
}

func read(ctx context.Context, s settings) any {
	start := map[int32]kgo.Offset{}
	for p := range s.Partitions {
		start[int32(p)] = kgo.NewOffset().AtStart()
	}
	client := s.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: start}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
	)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, s.Topic)
	check(err)
	left := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left[end.Partition] = end.Offset
		}
	})
	values := []string{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				values = append(values, string(record.Value))
			}
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	return values
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var s settings
	check(json.Unmarshal([]byte(os.Args[2]), &s))
	steps := map[string]func(context.Context, settings) any{
		"rounds": rounds, "fenced": fenced, "read": read,
	}
	answer, err := json.Marshal(steps[os.Args[1]](ctx, s))
	check(err)
	fmt.Println(string(answer))
}
