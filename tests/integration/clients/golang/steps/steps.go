// Package steps is what the programs of Go clients share: a program is called as `PROGRAM STEP
// JSON`, and prints one line of JSON.
package steps

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// Round is one transaction: the records of some numbers, and perhaps an offset.
type Round struct {
	First  int   `json:"first"`
	End    int   `json:"end"`
	Commit bool  `json:"commit"`
	Offset int64 `json:"offset"`
}

// Settings of a step; which of them count depends on it.
type Settings struct {
	Brokers    string  `json:"brokers"`
	Topic      string  `json:"topic"`
	Group      string  `json:"group"`
	Partitions int     `json:"partitions"`
	First      int     `json:"first"`
	End        int     `json:"end"`
	Codec      string  `json:"codec"`
	Members    int     `json:"members"`
	Count      int     `json:"count"`
	BytesMax   int     `json:"bytes_max"` // of an answer; 0: the client's own
	ID         string  `json:"id"`
	Source     string  `json:"source"`
	Rounds     []Round `json:"rounds"`
}

// Seeds returns the brokers' addresses.
func (s Settings) Seeds() []string { return strings.Split(s.Brokers, ",") }

// Record as the tests want it back.
type Record struct {
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
}

// Key and Value of a number.
func Key(number int) string   { return fmt.Sprintf("key-%d", number%20) }
func Value(number int) string { return fmt.Sprintf("value-%d", number) }

// Check ends the program with an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Until calls a function until it is content, or for too long: brokers hear of changes one after
// the other.
func Until(isContent func() bool) {
	for end := time.Now().Add(20 * time.Second); !isContent() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

// Run does the step that the arguments name.
func Run(steps map[string]func(Settings) any) {
	var s Settings
	Check(json.Unmarshal([]byte(os.Args[2]), &s))
	answer, err := json.Marshal(steps[os.Args[1]](s))
	Check(err)
	fmt.Println(string(answer))
}
