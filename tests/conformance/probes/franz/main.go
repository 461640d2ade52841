// franz-go as a probe: it writes with acks=all and reads in a group, and tells each event on its standard
// output (see ../../probing.py for the vocabulary). Every setting is the client's default, but where to begin.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var lock sync.Mutex

func say(what string, number string) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Printf("%s %s %.1f\n", what, number, float64(time.Now().UnixMicro())/1000)
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	seeds := kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
	log := kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil))
	made, err := kgo.NewClient(append(options, seeds, log)...)
	if err != nil {
		panic(err)
	}
	return made
}

func read(consumer *kgo.Client) {
	for {
		fetches := consumer.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(record *kgo.Record) { say("read", string(record.Value)) })
	}
}

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	every, _ := strconv.Atoi(os.Args[3])
	consumer := client(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumerGroup("group-"+topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	go read(consumer)
	producer := client(bootstrap, kgo.DefaultProduceTopic(topic))
	told := make(chan string)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			told <- lines.Text()
		}
		close(told)
	}()
	tick := time.NewTicker(time.Duration(every) * time.Millisecond)
	for number := 0; ; number++ {
		select {
		case <-told:
			producer.Flush(context.Background())
			say("sent", strconv.Itoa(number))
			<-told
			producer.Close()
			consumer.Close()
			return
		case <-tick.C:
		}
		name := strconv.Itoa(number)
		producer.Produce(context.Background(), kgo.StringRecord(name), func(_ *kgo.Record, err error) {
			if err == nil {
				say("acked", name)
			} else {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			}
		})
	}
}
