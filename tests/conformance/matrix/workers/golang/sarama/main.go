// sarama as a worker: it does what it is told on standard input (see ../../../remote.py for the vocabulary). Every
// setting is the client's default, but where to begin, that errors and acknowledgements are told, and what a
// request names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"strandline/tests/conformance/matrix/workers/golang/telling"
)

type producer struct {
	sarama.AsyncProducer
	pending sync.WaitGroup
}

type consumer struct {
	group   sarama.ConsumerGroup // none for one that was assigned its partitions
	single  sarama.Consumer
	streams []sarama.PartitionConsumer
	read    chan *sarama.ConsumerMessage
	ended   context.Context
	end     context.CancelFunc
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
	has     map[int32]bool
}

var (
	producers telling.Opened[*producer]
	consumers telling.Opened[*consumer]
	client    sarama.Client
	admin     sarama.ClusterAdmin
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func produce(given telling.Asked) error {
	options := sarama.NewConfig()
	options.Producer.RequiredAcks = sarama.WaitForAll
	options.Producer.Return.Successes = true
	options.Producer.Compression = codecs[given.Codec]
	if given.Idempotent {
		options.Producer.Idempotent = true
		options.Net.MaxOpenRequests = 1
	}
	if given.Transactional != nil {
		options.Producer.Transaction.ID = *given.Transactional
	}
	opened, err := sarama.NewAsyncProducer(telling.Seeds(), options)
	if err != nil {
		return err
	}
	made := &producer{AsyncProducer: opened}
	go func() {
		for one := range made.Successes() {
			telling.Sent(one.Metadata.(int64), nil)
			made.pending.Done()
		}
	}()
	go func() {
		for one := range made.Errors() {
			telling.Sent(0, one.Err)
			made.pending.Done()
		}
	}()
	producers.Keep(given.Name, made)
	return nil
}

func encoded(text *string) sarama.Encoder {
	if text == nil {
		return nil
	}
	return sarama.StringEncoder(*text)
}

func send(to *producer, given telling.Asked) {
	record := &sarama.ProducerMessage{
		Topic: given.Topic, Key: encoded(given.Key), Value: encoded(given.Value), Metadata: given.Token,
	}
	if given.Timestamp != nil {
		record.Timestamp = time.UnixMilli(*given.Timestamp)
	}
	for _, header := range given.Headers {
		one := sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])}
		record.Headers = append(record.Headers, one)
	}
	to.pending.Add(1)
	to.Input() <- record
}

// Setup, Cleanup and ConsumeClaim are what a group calls.
func (one *consumer) Setup(session sarama.ConsumerGroupSession) error {
	one.lock.Lock()
	defer one.lock.Unlock()
	one.session, one.has = session, map[int32]bool{}
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			one.has[partition] = true
		}
	}
	return nil
}

func (one *consumer) Cleanup(sarama.ConsumerGroupSession) error {
	one.lock.Lock()
	defer one.lock.Unlock()
	one.session, one.has = nil, map[int32]bool{}
	return nil
}

func (one *consumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		select {
		case one.read <- record:
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func consume(given telling.Asked) (err error) {
	options := sarama.NewConfig()
	options.Consumer.Offsets.Initial = sarama.OffsetOldest
	options.Consumer.Return.Errors = true
	if given.Level == "read_committed" {
		options.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	made := &consumer{read: make(chan *sarama.ConsumerMessage), has: map[int32]bool{}}
	made.ended, made.end = context.WithCancel(context.Background())
	if given.Group != "" {
		if made.group, err = sarama.NewConsumerGroup(telling.Seeds(), given.Group, options); err != nil {
			return err
		}
		go func() {
			for made.ended.Err() == nil {
				if err := made.group.Consume(made.ended, []string{given.Topic}, made); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}()
	} else if err = made.assign(given, options); err != nil {
		return err
	}
	consumers.Keep(given.Name, made)
	return nil
}

func (one *consumer) assign(given telling.Asked, options *sarama.Config) (err error) {
	partitions, err := given.Places()
	if err != nil {
		return err
	}
	if one.single, err = sarama.NewConsumer(telling.Seeds(), options); err != nil {
		return err
	}
	for _, partition := range partitions {
		one.has[partition] = true
		stream, err := one.single.ConsumePartition(given.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		one.streams = append(one.streams, stream)
		go complain(stream.Errors())
		go func() {
			for record := range stream.Messages() {
				select {
				case one.read <- record:
				case <-one.ended.Done(): // what is left is thrown away
				}
			}
		}()
	}
	return nil
}

func (one *consumer) poll() any {
	var records []telling.Record
	wait := time.After(200 * time.Millisecond)
	for len(records) < 500 {
		select {
		case found := <-one.read:
			records = append(records, told(found))
			if len(records) == 1 {
				wait = time.After(10 * time.Millisecond)
			}
			continue
		case <-wait:
		}
		break
	}
	one.lock.Lock()
	defer one.lock.Unlock()
	return telling.Polled(records, one.has)
}

func told(record *sarama.ConsumerMessage) telling.Record {
	headers := [][2]string{}
	for _, header := range record.Headers {
		headers = append(headers, [2]string{string(header.Key), string(header.Value)})
	}
	return telling.Record{
		Partition: record.Partition, Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(),
		Key: telling.Text(record.Key), Value: telling.Text(record.Value), Headers: headers,
	}
}

// commit fails if the client tells of an error meanwhile: the call itself returns none.
func (one *consumer) commit() error {
	for {
		select {
		case <-one.group.Errors(): // of earlier
			continue
		default:
		}
		break
	}
	one.lock.Lock()
	session := one.session
	one.lock.Unlock()
	if session == nil {
		return errors.New("between two sessions")
	}
	session.Commit()
	select {
	case err := <-one.group.Errors():
		return err
	default:
		return nil
	}
}

func (one *consumer) close() error {
	one.end()
	if one.group != nil {
		go complain(one.group.Errors())
		return one.group.Close()
	}
	for _, stream := range one.streams {
		stream.AsyncClose()
	}
	return one.single.Close()
}

func complain[E error](errors <-chan E) {
	for err := range errors {
		fmt.Fprintln(os.Stderr, err)
	}
}

func administered(given telling.Asked) (any, error) {
	switch given.Do {
	case "create":
		partitions, err := given.Count()
		if err != nil {
			return nil, err
		}
		return nil, admin.CreateTopic(given.Topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3}, false)
	case "delete":
		return nil, admin.DeleteTopic(given.Topic)
	case "topics":
		counts := map[string]int32{}
		told, err := admin.ListTopics()
		for name, one := range told {
			counts[name] = one.NumPartitions
		}
		return counts, err
	case "config":
		told, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: given.Topic})
		for _, one := range told {
			if one.Name == given.Name {
				return one.Value, err
			}
		}
		return nil, errors.Join(err, fmt.Errorf("no setting %s", given.Name))
	case "set-config":
		changes := map[string]*string{given.Name: given.Value}
		return nil, admin.AlterConfig(sarama.TopicResource, given.Topic, changes, false)
	case "ends":
		first, err := client.GetOffset(given.Topic, given.Partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		last, err := client.GetOffset(given.Topic, given.Partition, sarama.OffsetNewest)
		return []int64{first, last}, err
	case "offset-at":
		return client.GetOffset(given.Topic, given.Partition, *given.Timestamp)
	case "groups":
		names := []string{}
		told, err := admin.ListConsumerGroups()
		if err != nil {
			return nil, errors.Join(err, client.RefreshMetadata())
		}
		for name := range told {
			names = append(names, name)
		}
		return names, nil
	case "group-state":
		told, err := admin.DescribeConsumerGroups([]string{given.Group})
		if err != nil {
			return nil, errors.Join(err, client.RefreshCoordinator(given.Group))
		}
		if told[0].Err != sarama.ErrNoError {
			return nil, told[0].Err
		}
		return told[0].State, nil
	case "committed":
		told, err := admin.ListConsumerGroupOffsets(given.Group, map[string][]int32{given.Topic: {given.Partition}})
		if err != nil {
			return nil, errors.Join(err, client.RefreshCoordinator(given.Group))
		}
		return told.GetBlock(given.Topic, given.Partition).Offset, nil
	}
	return nil, fmt.Errorf("not in the vocabulary: %s", given.Do)
}

func done(given telling.Asked) (any, error) {
	writer, isWriter := producers.Get(given.Name)
	reader, _ := consumers.Get(given.Name)
	switch given.Do {
	case "producer":
		return nil, produce(given)
	case "send":
		send(writer, given)
		return nil, nil
	case "flush":
		writer.pending.Wait()
		return nil, nil
	case "begin":
		return nil, writer.BeginTxn()
	case "commit-transaction":
		return nil, writer.CommitTxn()
	case "abort":
		return nil, writer.AbortTxn()
	case "consumer":
		return nil, consume(given)
	case "poll":
		return reader.poll(), nil
	case "commit":
		return nil, reader.commit()
	case "close":
		if isWriter {
			writer.AsyncClose()
			return nil, nil
		}
		return nil, reader.close()
	}
	return administered(given)
}

func main() {
	var err error
	if client, err = sarama.NewClient(telling.Seeds(), sarama.NewConfig()); err == nil {
		admin, err = sarama.NewClusterAdminFromClient(client)
	}
	if err != nil {
		panic(err)
	}
	telling.Serve(done)
}
