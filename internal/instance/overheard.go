package instance

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const (
	// maxOverheard bounds the messages of a connection that are remembered, and overheardFor how
	// long.
	maxOverheard = 4096
	overheardFor = time.Minute
	// catchUp is how old a message may be and still be compared.
	catchUp = overheardFor / 2
)

// overheard holds the custom messages that recently came over a connection. A message that also
// came over a panel was sent to all sockets of the instance, and may be about anybody's work. In
// doubt, a message counts as one of those.
type overheard struct {
	mu        sync.Mutex
	listeners int // panels of the connection; without any, nothing is noted
	next      uint64
	notes     []overheardNote // oldest first
	// lost is when the newest of the messages came that were forgotten for lack of room.
	lost time.Time
}

type overheardNote struct {
	number uint64
	sum    [sha256.Size]byte
	at     time.Time
}

// arrived is a message of a panel, and when it came.
type arrived struct {
	comfyui.Frame
	at time.Time
}

// hearing is which notes of a connection a panel has matched: a broadcast comes once over each of
// them, so one note stands for one message. It belongs to one goroutine.
type hearing struct {
	since uint64
	met   map[uint64]bool
}

// listen starts noting. Call it before the panel's socket is opened.
func (o *overheard) listen() hearing {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners++
	return hearing{since: o.next, met: map[uint64]bool{}}
}

// unlisten undoes one listen.
func (o *overheard) unlisten() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listeners--; o.listeners == 0 {
		o.notes = nil
	}
}

// note takes a message from the connection.
func (o *overheard) note(f comfyui.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listeners == 0 || !isCustom(f) {
		return
	}
	o.notes = append(o.notes, overheardNote{o.next, sha256.Sum256(f.Data), time.Now()})
	o.next++
	gone := max(len(o.notes)-maxOverheard, 0)
	if gone > 0 {
		o.lost = o.notes[gone-1].at
	}
	for gone < len(o.notes) && time.Since(o.notes[gone].at) > overheardFor {
		gone++
	}
	o.notes = slices.Delete(o.notes, 0, gone)
}

// broadcast reports whether a panel's message went to everybody.
func (o *overheard) broadcast(f arrived, by *hearing) bool {
	sum := sha256.Sum256(f.Data)
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(f.at) > catchUp || o.lost.After(f.at.Add(-catchUp)) {
		return true
	}
	if len(by.met) > maxOverheard && len(o.notes) > 0 {
		for number := range by.met {
			if number < o.notes[0].number {
				delete(by.met, number)
			}
		}
	}
	for _, n := range o.notes {
		if n.sum == sum && n.number >= by.since && !by.met[n.number] {
			by.met[n.number] = true
			return true
		}
	}
	return false
}
