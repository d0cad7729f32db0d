package comfyui

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Queue is what a server runs and what waits there.
type Queue struct {
	// Running has at most one item on a stock server.
	Running []QueueItem
	// Pending is in the order in which the server will run it.
	Pending []QueueItem
}

// QueueItem is one prompt in a server's queue.
type QueueItem struct {
	// Number is the JSON literal, which may be NaN.
	Number string
	// ID is the prompt_id.
	ID string
	// Prompt and Extra are raw JSON.
	Prompt, Extra []byte
	// Outputs are the ids of the output nodes to execute.
	Outputs []string
	// Mark says whose prompt it is.
	Mark Mark
}

// Mark is what a hub writes into extra_data.comfyhub of each prompt that it
// dispatches. The zero Mark is on foreign prompts.
type Mark struct {
	// Job is the hub's key of the job.
	Job   string
	Fence int64
	// Part says that the run makes only a part of the job.
	Part bool
}

// Ours reports whether a hub dispatched the prompt.
func (m Mark) Ours() bool { return m.Job != "" }

// Foreign counts the prompts that no hub dispatched.
func (q Queue) Foreign() int {
	n := 0
	for _, list := range [][]QueueItem{q.Running, q.Pending} {
		for _, item := range list {
			if !item.Mark.Ours() {
				n++
			}
		}
	}
	return n
}

// Queue lists what runs and what waits.
func (c *Client) Queue(ctx context.Context) (Queue, error) {
	data, err := c.wire.get(ctx, "/queue", nil)
	if err != nil {
		return Queue{}, err
	}
	return ParseQueue(data)
}

// QueueRemaining asks how many prompts run and wait.
func (c *Client) QueueRemaining(ctx context.Context) (int, error) {
	data, err := c.wire.get(ctx, "/prompt", nil)
	if err != nil {
		return 0, err
	}
	remaining, found := execInfo(data)
	if !found {
		return 0, fmt.Errorf("/prompt: %w", ErrMalformed)
	}
	return remaining, nil
}

// execInfo reads {"exec_info": {"queue_remaining": N}}.
func execInfo(data []byte) (remaining int, found bool) {
	pyjson.Members(data, func(key string, value []byte) {
		if key != "exec_info" {
			return
		}
		pyjson.Members(value, func(key string, value []byte) {
			if key == "queue_remaining" {
				var n int64
				n, found = pyjson.Number(value).Int64()
				remaining = int(n)
			}
		})
	})
	return remaining, found
}

// ParseQueue reads an answer of GET /queue. Elements that are no queue items are
// left out. The error is [ErrMalformed].
func ParseQueue(data []byte) (Queue, error) {
	var q Queue
	s := pyjson.Scanner{Data: data}
	ok := s.Object(func(key string) bool {
		switch key {
		case "queue_running":
			return queueItems(&s, &q.Running)
		case "queue_pending":
			return queueItems(&s, &q.Pending)
		}
		return s.Skip()
	})
	if !ok {
		return Queue{}, fmt.Errorf("/queue: %w", ErrMalformed)
	}
	// The server shows its heap as it lies in memory.
	slices.SortStableFunc(q.Pending, func(a, b QueueItem) int {
		return cmp.Or(compareNumbers(a.Number, b.Number), cmp.Compare(a.ID, b.ID))
	})
	return q, nil
}

// compareNumbers orders literals; NaN goes last.
func compareNumbers(a, b string) int {
	x, y := pyjson.Number(a).Float64(), pyjson.Number(b).Float64()
	switch {
	case math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x):
		return 1
	case math.IsNaN(y):
		return -1
	}
	return cmp.Compare(x, y)
}

func queueItems(s *pyjson.Scanner, items *[]QueueItem) bool {
	if s.Peek() != '[' {
		return s.Skip()
	}
	return s.Array(func(int) bool {
		if s.Peek() != '[' {
			return s.Skip()
		}
		item, ok := queueItem(s)
		if ok && item.ID != "" {
			*items = append(*items, item)
		}
		return ok
	})
}

func queueItem(s *pyjson.Scanner) (QueueItem, bool) {
	var item QueueItem
	ok := s.Array(func(i int) bool {
		place, ok := s.Value()
		if !ok {
			return false
		}
		raw := place.Of(s.Data)
		switch i {
		case 0:
			item.Number = string(raw)
		case 1:
			item.ID = pyjson.Unquote(raw)
		case 2:
			item.Prompt = raw
		case 3:
			item.Extra = raw
			item.Mark = ParseMark(raw)
		case 4:
			item.Outputs = stringList(raw)
		}
		return true
	})
	return item, ok
}

// ParseMark reads extra_data.comfyhub.
func ParseMark(extra []byte) Mark {
	var mark Mark
	pyjson.Members(extra, func(key string, value []byte) {
		if key != "comfyhub" {
			return
		}
		mark = Mark{}
		pyjson.Members(value, func(key string, value []byte) {
			switch key {
			case "job":
				mark.Job = pyjson.Unquote(value)
			case "fence":
				mark.Fence, _ = pyjson.Number(value).Int64() // 0 is the fence of no run
			case "part":
				mark.Part = string(value) == "true"
			}
		})
	})
	return mark
}

// stringList returns the strings of a JSON array.
func stringList(raw []byte) []string {
	var list []string
	s := pyjson.Scanner{Data: raw}
	s.Array(func(int) bool {
		place, ok := s.Value()
		if ok && raw[place.From] == '"' {
			list = append(list, pyjson.Unquote(place.Of(raw)))
		}
		return ok
	})
	return list
}
