// The tests' program of sarama: produce, a consumer group, admin, transactions, a compacted topic.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"quire.tests/golang/steps"
)

const patience = 50 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	return c
}

func send(producer sarama.SyncProducer, topic string, first, end int) error {
	var messages []*sarama.ProducerMessage
	for n := first; n < end; n++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(steps.Key(n)), Value: sarama.StringEncoder(steps.Value(n)),
		})
	}
	return producer.SendMessages(messages)
}

func produce(s steps.Settings) any {
	c := config()
	c.Producer.Compression = codecs[s.Codec]
	producer, err := sarama.NewSyncProducer(s.Seeds(), c)
	steps.Check(err)
	steps.Check(send(producer, s.Topic, s.First, s.End))
	steps.Check(producer.Close())
	return true
}

// member hands on what the group's members are given.
type member struct{ records chan<- steps.Record }

func (m member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.records <- record(message)
		session.MarkMessage(message, "")
	}
	return nil
}

func record(m *sarama.ConsumerMessage) steps.Record {
	return steps.Record{
		Partition: int(m.Partition), Offset: m.Offset, Key: string(m.Key), Value: string(m.Value),
	}
}

func group(s steps.Settings) any {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	records := make(chan steps.Record)
	var members sync.WaitGroup
	for range s.Members {
		consumer, err := sarama.NewConsumerGroup(s.Seeds(), s.Group, config())
		steps.Check(err)
		members.Add(1)
		go func() {
			defer members.Done()
			for ctx.Err() == nil {
				steps.Check(consumer.Consume(ctx, []string{s.Topic}, member{records}))
			}
			steps.Check(consumer.Close())
		}()
	}
	found := []steps.Record{}
	for len(found) < s.Count {
		select {
		case one := <-records:
			found = append(found, one)
		case <-ctx.Done():
			return found
		}
	}
	cancel()
	members.Wait()
	return found
}

func admin(s steps.Settings) any {
	admin, err := sarama.NewClusterAdmin(s.Seeds(), config())
	steps.Check(err)
	defer admin.Close()
	retention, size := "3600000", "1048576"
	detail := &sarama.TopicDetail{
		NumPartitions: int32(s.Partitions), ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	steps.Check(admin.CreateTopic(s.Topic, detail, false))
	steps.Check(admin.CreatePartitions(s.Topic, int32(s.Partitions+1), nil, false))
	change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size}
	steps.Check(admin.IncrementalAlterConfig(sarama.TopicResource, s.Topic,
		map[string]sarama.IncrementalAlterConfigsEntry{"segment.bytes": change}, false))
	configs := map[string]string{}
	steps.Until(func() bool {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: s.Topic, ConfigNames: []string{"retention.ms", "segment.bytes"},
		})
		steps.Check(err)
		for _, entry := range entries {
			configs[entry.Name] = entry.Value
		}
		return configs["segment.bytes"] == size
	})
	partitions := int32(0)
	steps.Until(func() bool {
		topics, err := admin.ListTopics()
		steps.Check(err)
		partitions = topics[s.Topic].NumPartitions
		return partitions == int32(s.Partitions+1)
	})
	groups, err := admin.DescribeConsumerGroups([]string{s.Group})
	steps.Check(err)
	offsets, err := admin.ListConsumerGroupOffsets(s.Group, nil)
	steps.Check(err)
	total := int64(0)
	for _, partition := range offsets.Blocks[s.Source] {
		total += partition.Offset
	}
	again := admin.CreateTopic(s.Topic, detail, false)
	steps.Check(admin.DeleteTopic(s.Topic))
	return map[string]any{
		"partitions": partitions, "configs": configs, "state": groups[0].State,
		"committed": total, "exists": errors.Is(again, sarama.ErrTopicAlreadyExists),
	}
}

// read returns everything of committed data, to the ends at its begin.
func read(s steps.Settings) any {
	values := []string{}
	for _, one := range records(s) {
		values = append(values, one.Value)
	}
	return values
}

func records(s steps.Settings) []steps.Record {
	c := config()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient(s.Seeds(), c)
	steps.Check(err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	steps.Check(err)
	found := []steps.Record{}
	for p := range int32(s.Partitions) {
		reader, err := consumer.ConsumePartition(s.Topic, p, sarama.OffsetOldest)
		steps.Check(err)
		// sarama does not tell where it is: control records are no messages.
		for quiet := false; !quiet; {
			select {
			case message := <-reader.Messages():
				found = append(found, record(message))
			case <-time.After(time.Second):
				quiet = len(found) >= s.Count || p+1 < int32(s.Partitions)
			}
		}
		steps.Check(reader.Close())
	}
	return found
}

func transactional(s steps.Settings) sarama.SyncProducer {
	c := config()
	c.Producer.Transaction.ID = s.ID
	producer, err := sarama.NewSyncProducer(s.Seeds(), c)
	steps.Check(err)
	return producer
}

func rounds(s steps.Settings) any {
	producer := transactional(s)
	for _, one := range s.Rounds {
		steps.Check(producer.BeginTxn())
		steps.Check(send(producer, s.Topic, one.First, one.End))
		if one.Offset >= 0 {
			offsets := map[string][]*sarama.PartitionOffsetMetadata{
				s.Source: {{Partition: 0, Offset: one.Offset}},
			}
			steps.Check(producer.AddOffsetsToTxn(offsets, s.Group))
		}
		if one.Commit {
			steps.Check(producer.CommitTxn())
		} else {
			steps.Check(producer.AbortTxn())
		}
	}
	steps.Check(producer.Close())
	return true
}

// fenced lets a second producer take the id of a first one that has a transaction open.
func fenced(s steps.Settings) any {
	first := transactional(s)
	steps.Check(first.BeginTxn())
	steps.Check(send(first, s.Topic, 0, 1))
	second := transactional(s)
	met := "nothing"
	if err := first.CommitTxn(); err != nil {
		met = err.Error()
		for _, known := range []sarama.KError{sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch} {
			if errors.Is(err, known) {
				met = map[sarama.KError]string{
					sarama.ErrProducerFenced: "PRODUCER_FENCED", sarama.ErrInvalidProducerEpoch: "INVALID_PRODUCER_EPOCH",
				}[known]
			}
		}
	}
	steps.Check(second.BeginTxn())
	steps.Check(send(second, s.Topic, 1, 2))
	steps.Check(second.CommitTxn())
	return met
}

func main() {
	steps.Run(map[string]func(steps.Settings) any{
		"produce": produce, "group": group, "admin": admin, "read": read, "rounds": rounds, "fenced": fenced,
		"records": func(s steps.Settings) any { return records(s) },
	})
}
