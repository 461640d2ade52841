// franz-go as a worker: it does what it is told on standard input (see ../../remote.py for the vocabulary). Every
// setting is the client's default, but where to begin and what a request names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/tests/conformance/matrix/workers/golang/telling"
)

type consumer struct {
	client   *kgo.Client
	topic    string
	isMember bool
	lock     sync.Mutex
	has      map[int32]bool
}

var (
	producers telling.Opened[*kgo.Client]
	consumers telling.Opened[*consumer]
	admin     *kadm.Client
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func producer(name string) *kgo.Client {
	found, _ := producers.Get(name)
	return found
}

func reader(name string) *consumer {
	found, _ := consumers.Get(name)
	return found
}

func produce(given telling.Asked) error {
	options := []kgo.Opt{kgo.SeedBrokers(telling.Seeds()...), kgo.ProducerBatchCompression(codecs[given.Codec])}
	if !given.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if given.Transactional != nil {
		options = append(options, kgo.TransactionalID(*given.Transactional))
	}
	made, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	producers.Keep(given.Name, made)
	return nil
}

func send(given telling.Asked) {
	record := &kgo.Record{Topic: given.Topic, Key: telling.Bytes(given.Key), Value: telling.Bytes(given.Value)}
	if given.Timestamp != nil {
		record.Timestamp = time.UnixMilli(*given.Timestamp)
	}
	for _, header := range given.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
	}
	producer(given.Name).Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		telling.Sent(given.Token, err)
	})
}

func consume(given telling.Asked) error {
	made := &consumer{topic: given.Topic, has: map[int32]bool{}, isMember: given.Group != ""}
	start := kgo.NewOffset().AtStart()
	options := []kgo.Opt{kgo.SeedBrokers(telling.Seeds()...), kgo.ConsumeResetOffset(start)}
	if given.Level == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	context848 := context.Background()
	if given.Group == "" {
		partitions, err := given.Places()
		if err != nil {
			return err
		}
		places := map[int32]kgo.Offset{}
		for _, one := range partitions {
			places[one], made.has[one] = start, true
		}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: places}))
	} else {
		options = append(options, kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { made.note(got, true) }),
			kgo.OnPartitionsRevoked(func(at context.Context, client *kgo.Client, lost map[string][]int32) {
				if err := client.CommitUncommittedOffsets(at); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				made.note(lost, false)
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { made.note(lost, false) }))
		switch given.Kind {
		case "range":
			options = append(options, kgo.Balancers(kgo.RangeBalancer()))
		case "cooperative":
			options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
		case "consumer":
			context848 = context.WithValue(context848, "opt_in_kafka_next_gen_balancer_beta", true)
		}
	}
	client, err := kgo.NewClient(append(options, kgo.WithContext(context848))...)
	if err != nil {
		return err
	}
	made.client = client
	consumers.Keep(given.Name, made)
	return nil
}

func (one *consumer) note(places map[string][]int32, has bool) {
	one.lock.Lock()
	defer one.lock.Unlock()
	for _, partition := range places[one.topic] {
		if has {
			one.has[partition] = true
		} else {
			delete(one.has, partition)
		}
	}
}

func (one *consumer) poll() (any, error) {
	limited, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	fetches := one.client.PollFetches(limited)
	var records []telling.Record
	fetches.EachRecord(func(record *kgo.Record) {
		headers := [][2]string{}
		for _, header := range record.Headers {
			headers = append(headers, [2]string{header.Key, string(header.Value)})
		}
		records = append(records, telling.Record{
			Partition: record.Partition, Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(),
			Key: telling.Text(record.Key), Value: telling.Text(record.Value), Headers: headers,
		})
	})
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			fmt.Fprintln(os.Stderr, failed.Err)
		}
	}
	one.lock.Lock()
	defer one.lock.Unlock()
	return telling.Polled(records, one.has), nil
}

// commit fails where there is nothing to be committed: a new session has forgotten what the last one had read.
func (one *consumer) commit() error {
	if len(one.client.UncommittedOffsets()) > 0 {
		return one.client.CommitUncommittedOffsets(telling.Minute())
	}
	for _, committed := range one.client.CommittedOffsets()[one.topic] {
		if committed.Offset > 0 {
			return nil
		}
	}
	return errors.New("nothing was read in this session")
}

func close(name string) error {
	if found := producer(name); found != nil {
		found.Close()
		return nil
	}
	found := reader(name)
	var err error
	if found.isMember {
		err = found.client.CommitUncommittedOffsets(telling.Minute())
	}
	found.client.Close()
	return err
}

func offset(told kadm.ListedOffsets, err error, given telling.Asked) (int64, error) {
	if err != nil {
		return 0, err
	}
	found, _ := told.Lookup(given.Topic, given.Partition)
	return found.Offset, found.Err
}

func administered(given telling.Asked) (any, error) {
	switch given.Do {
	case "create":
		partitions, err := given.Count()
		if err != nil {
			return nil, err
		}
		made, err := admin.CreateTopic(telling.Minute(), partitions, 3, nil, given.Topic)
		if err == nil {
			err = made.Err
		}
		return nil, err
	case "delete":
		_, err := admin.DeleteTopic(telling.Minute(), given.Topic)
		return nil, err
	case "topics":
		counts := map[string]int{}
		told, err := admin.ListTopics(telling.Minute())
		for name, one := range told {
			counts[name] = len(one.Partitions)
		}
		return counts, err
	case "config":
		told, err := admin.DescribeTopicConfigs(telling.Minute(), given.Topic)
		if err != nil {
			return nil, err
		}
		for _, one := range told[0].Configs {
			if one.Key == given.Name {
				return one.MaybeValue(), nil
			}
		}
		return nil, fmt.Errorf("no setting %s", given.Name)
	case "set-config":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: given.Name, Value: given.Value}
		told, err := admin.AlterTopicConfigs(telling.Minute(), []kadm.AlterConfig{change}, given.Topic)
		if err == nil {
			err = told[0].Err
		}
		return nil, err
	case "ends":
		starts, err := admin.ListStartOffsets(telling.Minute(), given.Topic)
		first, err := offset(starts, err, given)
		if err != nil {
			return nil, err
		}
		ends, err := admin.ListEndOffsets(telling.Minute(), given.Topic)
		last, err := offset(ends, err, given)
		return []int64{first, last}, err
	case "offset-at":
		told, err := admin.ListOffsetsAfterMilli(telling.Minute(), *given.Timestamp, given.Topic)
		return offset(told, err, given)
	case "groups":
		told, err := admin.ListGroups(telling.Minute())
		return told.Groups(), err
	case "group-state":
		told, err := admin.DescribeGroups(telling.Minute(), given.Group)
		if err != nil {
			return nil, err
		}
		return told[given.Group].State, told[given.Group].Err
	case "committed":
		told, err := admin.FetchOffsets(telling.Minute(), given.Group)
		if err != nil {
			return nil, err
		}
		found, _ := told.Lookup(given.Topic, given.Partition)
		return found.At, found.Err
	}
	return nil, fmt.Errorf("not in the vocabulary: %s", given.Do)
}

func done(given telling.Asked) (any, error) {
	switch given.Do {
	case "producer":
		return nil, produce(given)
	case "send":
		send(given)
		return nil, nil
	case "flush":
		return nil, producer(given.Name).Flush(telling.Minute())
	case "begin":
		return nil, producer(given.Name).BeginTransaction()
	case "commit-transaction":
		if err := producer(given.Name).Flush(telling.Minute()); err != nil {
			return nil, err
		}
		return nil, producer(given.Name).EndTransaction(telling.Minute(), kgo.TryCommit)
	case "abort":
		if err := producer(given.Name).AbortBufferedRecords(telling.Minute()); err != nil {
			return nil, err
		}
		return nil, producer(given.Name).EndTransaction(telling.Minute(), kgo.TryAbort)
	case "consumer":
		return nil, consume(given)
	case "poll":
		return reader(given.Name).poll()
	case "commit":
		return nil, reader(given.Name).commit()
	case "close":
		return nil, close(given.Name)
	}
	return administered(given)
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(telling.Seeds()...))
	if err != nil {
		panic(err)
	}
	admin = kadm.NewClient(client)
	telling.Serve(done)
}
