// The tests' program of segmentio's kafka-go: produce, a consumer group, admin, committed data, a
// compacted topic. It has no transactional producer.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"quire.tests/golang/steps"
)

const patience = 50 * time.Second

var codecs = map[string]compress.Compression{
	"none": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.Lz4, "zstd": compress.Zstd,
}

func produce(s steps.Settings) any {
	writer := &kafka.Writer{
		Addr: kafka.TCP(s.Seeds()...), Topic: s.Topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, Compression: codecs[s.Codec],
	}
	var messages []kafka.Message
	for n := s.First; n < s.End; n++ {
		messages = append(messages, kafka.Message{Key: []byte(steps.Key(n)), Value: []byte(steps.Value(n))})
	}
	var err error
	steps.Until(func() bool { // it does not ask again itself when a broker does not know the topic yet
		err = writer.WriteMessages(context.Background(), messages...)
		return !errors.Is(err, kafka.UnknownTopicOrPartition)
	})
	steps.Check(err)
	steps.Check(writer.Close())
	return true
}

func record(m kafka.Message) steps.Record {
	return steps.Record{Partition: m.Partition, Offset: m.Offset, Key: string(m.Key), Value: string(m.Value)}
}

func group(s steps.Settings) any {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	records := make(chan steps.Record)
	var members sync.WaitGroup
	for range s.Members {
		members.Add(1)
		go func() {
			defer members.Done()
			reader := kafka.NewReader(kafka.ReaderConfig{
				Brokers: s.Seeds(), GroupID: s.Group, Topic: s.Topic, StartOffset: kafka.FirstOffset,
				MaxWait: 200 * time.Millisecond, HeartbeatInterval: 500 * time.Millisecond,
			})
			defer reader.Close()
			for {
				message, err := reader.FetchMessage(ctx)
				if err != nil {
					return
				}
				records <- record(message)
				steps.Check(reader.CommitMessages(context.Background(), message))
			}
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
	time.Sleep(200 * time.Millisecond) // the last commit
	cancel()
	members.Wait()
	return found
}

func admin(s steps.Settings) any {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(s.Seeds()[0])}
	create := func() error {
		created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: s.Topic, NumPartitions: s.Partitions, ReplicationFactor: 1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
		}}})
		steps.Check(err)
		return created.Errors[s.Topic]
	}
	steps.Check(create())
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: s.Topic, Count: int32(s.Partitions + 1)}},
	})
	steps.Check(err)
	steps.Check(grown.Errors[s.Topic])
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "segment.bytes", Value: "1048576", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	steps.Check(err)
	steps.Check(altered.Resources[0].Error)
	configs := map[string]string{}
	steps.Until(func() bool {
		described, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic,
				ConfigNames: []string{"retention.ms", "segment.bytes"},
			}},
		})
		steps.Check(err)
		for _, entry := range described.Resources[0].ConfigEntries {
			configs[entry.ConfigName] = entry.ConfigValue
		}
		return configs["segment.bytes"] == "1048576"
	})
	partitions := 0
	steps.Until(func() bool {
		metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{s.Topic}})
		steps.Check(err)
		partitions = len(metadata.Topics[0].Partitions)
		return partitions == s.Partitions+1
	})
	groups, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{s.Group}})
	steps.Check(err)
	offsets, err := client.ConsumerOffsets(ctx, kafka.TopicAndGroup{Topic: s.Source, GroupId: s.Group})
	steps.Check(err)
	total := int64(0)
	for _, offset := range offsets {
		total += offset
	}
	again := create()
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{s.Topic}})
	steps.Check(err)
	steps.Check(deleted.Errors[s.Topic])
	return map[string]any{
		"partitions": partitions, "configs": configs, "state": groups.Groups[0].GroupState,
		"committed": total, "exists": errors.Is(again, kafka.TopicAlreadyExists),
	}
}

// read returns as many values of committed data as there should be, or what came in time.
func read(s steps.Settings) any {
	values := []string{}
	for _, one := range records(s) {
		values = append(values, one.Value)
	}
	return values
}

func records(s steps.Settings) []steps.Record {
	found := []steps.Record{}
	for p := range s.Partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: s.Seeds(), Topic: s.Topic, Partition: p, IsolationLevel: kafka.ReadCommitted,
			MaxWait: 200 * time.Millisecond, MinBytes: s.BytesMax, MaxBytes: s.BytesMax,
		})
		steps.Check(reader.SetOffset(kafka.FirstOffset))
		for {
			// kafka-go does not tell where it is: control records are no messages.
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			message, err := reader.FetchMessage(ctx)
			cancel()
			if err != nil {
				break
			}
			found = append(found, record(message))
		}
		steps.Check(reader.Close())
	}
	return found
}

func main() {
	steps.Run(map[string]func(steps.Settings) any{
		"produce": produce, "group": group, "admin": admin, "read": read,
		"records": func(s steps.Settings) any { return records(s) },
	})
}
