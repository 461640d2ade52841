// Package telling is what all workers in Go share: requests come on standard input, answers go to standard output
// (see ../../../remote.py for the vocabulary).
package telling

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Asked is a request; each has some of these fields.
type Asked struct {
	ID            int64
	Do, Name      string
	Topic, Group  string
	Codec, Level  string
	Kind          string
	Transactional *string
	Idempotent    bool
	Partitions    json.RawMessage // a count, or the numbers
	Partition     int32
	Timestamp     *int64
	Key, Value    *string
	Headers       [][2]string
	Token         int64
}

// Places are the numbers of partitions to be read.
func (given Asked) Places() (partitions []int32, err error) {
	err = json.Unmarshal(given.Partitions, &partitions)
	return
}

// Count is how many partitions there are to be.
func (given Asked) Count() (partitions int32, err error) {
	err = json.Unmarshal(given.Partitions, &partitions)
	return
}

var lock sync.Mutex

func say(told any) {
	line, _ := json.Marshal(told)
	lock.Lock()
	defer lock.Unlock()
	fmt.Printf("%s\n", line)
}

// Sent tells that a record was acknowledged, or complains.
func Sent(token int64, err error) {
	if err == nil {
		say(map[string]int64{"acked": token})
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Minute is how long a call may take.
func Minute() context.Context {
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	time.AfterFunc(time.Minute, cancel)
	return limited
}

// Record is one that was read.
type Record struct {
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Timestamp int64       `json:"timestamp"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
}

// Text is a text, or none.
func Text(content []byte) *string {
	if content == nil {
		return nil
	}
	made := string(content)
	return &made
}

// Bytes are those of a text, or none.
func Bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// Polled is the answer of a poll.
func Polled(records []Record, has map[int32]bool) any {
	assignment := []int32{}
	for partition := range has {
		assignment = append(assignment, partition)
	}
	if records == nil {
		records = []Record{}
	}
	return map[string]any{"records": records, "assignment": assignment}
}

// Opened are producers or consumers by their names.
type Opened[T any] struct {
	lock  sync.Mutex
	named map[string]T
}

// Keep one under its name.
func (all *Opened[T]) Keep(name string, one T) {
	all.lock.Lock()
	defer all.lock.Unlock()
	if all.named == nil {
		all.named = map[string]T{}
	}
	all.named[name] = one
}

// Get the one with this name.
func (all *Opened[T]) Get(name string) (T, bool) {
	all.lock.Lock()
	defer all.lock.Unlock()
	one, found := all.named[name]
	return one, found
}

// Serve answers requests until there are no more, records that are to be sent in the order in which they come.
func Serve(done func(Asked) (any, error)) {
	answer := func(given Asked) {
		if told, err := done(given); err != nil {
			say(map[string]any{"id": given.ID, "error": err.Error()})
		} else {
			say(map[string]any{"id": given.ID, "ok": told})
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var given Asked
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		if given.Do == "send" {
			answer(given)
		} else {
			go answer(given)
		}
	}
}

// Seeds are the addresses of the brokers.
func Seeds() []string {
	return strings.Split(os.Args[1], ",")
}
