// kafka-go (segmentio) as a worker: it does what it is told on standard input (see ../../../remote.py for the
// vocabulary). Every setting is the client's default, but that the writer answers for all replicas and does not
// wait for each record, and what a request names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"strandline/tests/conformance/matrix/workers/golang/telling"
)

type producer struct {
	writer    *kafka.Writer
	transport *kafka.Transport
	pending   sync.WaitGroup
}

type consumer struct {
	readers []*kafka.Reader // one for each partition, or a member of a group
	read    chan kafka.Message
	ended   context.Context
	end     context.CancelFunc
	lock    sync.Mutex
	has     map[int32]bool
	last    map[int32]kafka.Message // what was read last of each partition that it has
	isIn    bool                    // a member of a group
}

var (
	producers telling.Opened[*producer]
	consumers telling.Opened[*consumer]
	transport = &kafka.Transport{}
	client    = &kafka.Client{Transport: transport}
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func produce(given telling.Asked) error {
	if given.Idempotent || given.Transactional != nil {
		return errors.New("its writer is neither idempotent nor transactional")
	}
	made := &producer{transport: &kafka.Transport{}}
	made.writer = &kafka.Writer{
		Addr: kafka.TCP(telling.Seeds()...), Transport: made.transport, Compression: codecs[given.Codec],
		RequiredAcks: kafka.RequireAll, Async: true,
		Completion: func(records []kafka.Message, err error) {
			for _, one := range records {
				telling.Sent(one.WriterData.(int64), err)
				made.pending.Done()
			}
		},
	}
	producers.Keep(given.Name, made)
	return nil
}

func send(to *producer, given telling.Asked) error {
	record := kafka.Message{
		Topic: given.Topic, Key: telling.Bytes(given.Key), Value: telling.Bytes(given.Value), WriterData: given.Token,
	}
	if given.Timestamp != nil {
		record.Time = time.UnixMilli(*given.Timestamp)
	}
	for _, header := range given.Headers {
		record.Headers = append(record.Headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
	}
	to.pending.Add(1)
	err := to.writer.WriteMessages(context.Background(), record)
	if err != nil { // it was not taken
		to.pending.Done()
	}
	return err
}

func consume(given telling.Asked) error {
	made := &consumer{
		read: make(chan kafka.Message), has: map[int32]bool{}, last: map[int32]kafka.Message{}, isIn: given.Group != "",
	}
	made.ended, made.end = context.WithCancel(context.Background())
	options := kafka.ReaderConfig{
		Brokers: telling.Seeds(), Topic: given.Topic, ErrorLogger: kafka.LoggerFunc(complain),
	}
	if given.Level == "read_committed" {
		options.IsolationLevel = kafka.ReadCommitted
	}
	if made.isIn {
		options.GroupID, options.Logger = given.Group, kafka.LoggerFunc(made.note)
		made.readers = []*kafka.Reader{kafka.NewReader(options)}
	} else {
		partitions, err := given.Places()
		if err != nil {
			return err
		}
		for _, partition := range partitions {
			options.Partition, made.has[partition] = int(partition), true
			made.readers = append(made.readers, kafka.NewReader(options))
		}
	}
	for _, one := range made.readers {
		go made.follow(one)
	}
	consumers.Keep(given.Name, made)
	return nil
}

func (one *consumer) follow(reader *kafka.Reader) {
	for one.ended.Err() == nil {
		record, err := reader.FetchMessage(one.ended)
		if err != nil {
			complain("%v", err)
			continue
		}
		select {
		case one.read <- record:
		case <-one.ended.Done(): // what is left is thrown away
		}
	}
}

var subscribed = regexp.MustCompile(`partition:(\d+)`)

// note what a member has: the client tells of it in its log only.
func (one *consumer) note(format string, given ...any) {
	one.lock.Lock()
	defer one.lock.Unlock()
	switch format {
	case "subscribed to topics and partitions: %+v":
		one.has = map[int32]bool{}
		for _, found := range subscribed.FindAllStringSubmatch(fmt.Sprintf(format, given...), -1) {
			partition, _ := strconv.Atoi(found[1])
			one.has[int32(partition)] = true
		}
		for partition := range one.last {
			if !one.has[partition] {
				delete(one.last, partition)
			}
		}
	case "stopped commit for group %s\n":
		one.has = map[int32]bool{}
	}
}

func complain(format string, given ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", given...)
}

func (one *consumer) poll() any {
	var records []telling.Record
	wait := time.After(200 * time.Millisecond)
	for len(records) < 500 {
		select {
		case found := <-one.read:
			records = append(records, one.told(found))
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

func (one *consumer) told(record kafka.Message) telling.Record {
	partition := int32(record.Partition)
	one.lock.Lock()
	if known, found := one.last[partition]; !found || known.Offset < record.Offset {
		one.last[partition] = record
	}
	one.lock.Unlock()
	headers := [][2]string{}
	for _, header := range record.Headers {
		headers = append(headers, [2]string{header.Key, string(header.Value)})
	}
	return telling.Record{
		Partition: partition, Offset: record.Offset, Timestamp: record.Time.UnixMilli(),
		Key: telling.Text(record.Key), Value: telling.Text(record.Value), Headers: headers,
	}
}

// commit what was read of the partitions that it has: the client itself would commit for any.
func (one *consumer) commit() error {
	one.lock.Lock()
	if len(one.has) == 0 {
		one.lock.Unlock()
		return errors.New("between two generations")
	}
	var records []kafka.Message
	for partition, record := range one.last {
		if one.has[partition] {
			records = append(records, record)
		}
	}
	one.lock.Unlock()
	if len(records) == 0 {
		return nil
	}
	return one.readers[0].CommitMessages(telling.Minute(), records...)
}

// close does not wait for readers that are no members: nobody waits for them, and each ends with its last
// question, which takes 10 s where nothing comes.
func (one *consumer) close() error {
	if !one.isIn {
		one.end()
		for _, reader := range one.readers {
			go reader.Close()
		}
		return nil
	}
	if err := one.commit(); err != nil { // who takes over reads it again
		complain("%v", err)
	}
	one.end()
	return one.readers[0].Close()
}

func offsets(given telling.Asked, wanted ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{given.Topic: wanted}}
	told, err := client.ListOffsets(telling.Minute(), request)
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := told.Topics[given.Topic]
	if len(found) != 1 {
		return kafka.PartitionOffsets{}, fmt.Errorf("offsets of one partition were asked for, told was %v", found)
	}
	return found[0], found[0].Error
}

func configured(given telling.Asked) (any, error) {
	if given.Do == "set-config" {
		change := kafka.IncrementalAlterConfigsRequestConfig{Name: given.Name, Value: *given.Value}
		told, err := client.IncrementalAlterConfigs(telling.Minute(), &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: given.Topic,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
			}},
		})
		if err == nil {
			err = told.Resources[0].Error
		}
		return nil, err
	}
	told, err := client.DescribeConfigs(telling.Minute(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: given.Topic}},
	})
	if err != nil {
		return nil, err
	}
	for _, one := range told.Resources[0].ConfigEntries {
		if one.ConfigName == given.Name {
			return one.ConfigValue, nil
		}
	}
	return nil, errors.Join(told.Resources[0].Error, fmt.Errorf("no setting %s", given.Name))
}

func grouped(given telling.Asked) (any, error) {
	switch given.Do {
	case "groups":
		names := []string{}
		told, err := client.ListGroups(telling.Minute(), &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		for _, one := range told.Groups {
			names = append(names, one.GroupID)
		}
		return names, told.Error
	case "group-state":
		told, err := client.DescribeGroups(telling.Minute(), &kafka.DescribeGroupsRequest{GroupIDs: []string{given.Group}})
		if err != nil {
			return nil, err
		}
		return told.Groups[0].GroupState, told.Groups[0].Error
	}
	told, err := client.OffsetFetch(telling.Minute(), &kafka.OffsetFetchRequest{
		GroupID: given.Group, Topics: map[string][]int{given.Topic: {int(given.Partition)}},
	})
	if err != nil {
		return nil, err
	}
	if found := told.Topics[given.Topic]; len(found) == 1 {
		return found[0].CommittedOffset, errors.Join(told.Error, found[0].Error)
	}
	return nil, errors.Join(told.Error, errors.New("no offset is told"))
}

func administered(given telling.Asked) (any, error) {
	partition := int(given.Partition)
	switch given.Do {
	case "create":
		partitions, err := given.Count()
		if err != nil {
			return nil, err
		}
		told, err := client.CreateTopics(telling.Minute(), &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{{Topic: given.Topic, NumPartitions: int(partitions), ReplicationFactor: 3}},
		})
		if err == nil {
			err = told.Errors[given.Topic]
		}
		return nil, err
	case "delete":
		told, err := client.DeleteTopics(telling.Minute(), &kafka.DeleteTopicsRequest{Topics: []string{given.Topic}})
		if err == nil {
			err = told.Errors[given.Topic]
		}
		return nil, err
	case "topics":
		told, err := client.Metadata(telling.Minute(), &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		counts := map[string]int{}
		for _, one := range told.Topics {
			counts[one.Name] = len(one.Partitions)
		}
		return counts, nil
	case "config", "set-config":
		return configured(given)
	case "ends":
		told, err := offsets(given, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
		return []int64{told.FirstOffset, told.LastOffset}, err
	case "offset-at":
		told, err := offsets(given, kafka.TimeOffsetOf(partition, time.UnixMilli(*given.Timestamp)))
		for offset := range told.Offsets {
			return offset, err
		}
		return nil, errors.Join(err, errors.New("no offset is told"))
	case "groups", "group-state", "committed":
		return grouped(given)
	}
	return nil, fmt.Errorf("not in the vocabulary: %s", given.Do)
}

// again asks once more where the answer was an error: until then the client goes by what it has known of the
// cluster for up to 6 s (`MetadataTTL`), which a new topic or leader is not in.
func again(given telling.Asked) (any, error) {
	told, err := administered(given)
	if err == nil {
		return told, nil
	}
	transport.CloseIdleConnections()
	return administered(given)
}

func done(given telling.Asked) (any, error) {
	writer, isWriter := producers.Get(given.Name)
	reader, _ := consumers.Get(given.Name)
	switch given.Do {
	case "producer":
		return nil, produce(given)
	case "send":
		return nil, send(writer, given)
	case "flush":
		writer.pending.Wait()
		return nil, nil
	case "consumer":
		return nil, consume(given)
	case "poll":
		return reader.poll(), nil
	case "commit":
		return nil, reader.commit()
	case "close":
		if isWriter {
			return nil, writer.writer.Close()
		}
		return nil, reader.close()
	}
	return again(given)
}

func main() {
	client.Addr = kafka.TCP(telling.Seeds()...)
	telling.Serve(done)
}
