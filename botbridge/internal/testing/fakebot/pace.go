package fakebot

import (
	"maps"
	"time"
)

// pace counts calls against Telegram's limits: about 30 a second in all, one a
// second in a chat, 20 a minute in a group. The windows are long enough that a
// busy machine, which bunches calls, does not break the limits.
type pace struct {
	all   []time.Time
	chats map[int64][]time.Time
	// over counts the calls that came too fast.
	over int
	// worst holds the fullest windows that were seen.
	worst Worst
}

// Worst holds the highest number of calls in any one window.
type Worst struct {
	// All is in 2 s, Chat in 5 s, Group in 60 s.
	All, Chat, Group int
}

const (
	allWindow   = 2 * time.Second
	chatWindow  = 5 * time.Second
	groupWindow = time.Minute
)

// allow records a call and reports whether it keeps the limits.
func (p *pace) allow(chat int64, now time.Time, scale float64) bool {
	p.all = append(since(p.all, now.Add(-allWindow)), now)
	p.worst.All = max(p.worst.All, len(p.all))
	ok := float64(len(p.all)) <= 30*scale*allWindow.Seconds()
	window := chatWindow
	if chat < groupsBelow {
		window = groupWindow
	}
	p.chats[chat] = append(since(p.chats[chat], now.Add(-window)), now)
	n := len(p.chats[chat])
	if chat < groupsBelow {
		p.worst.Group = max(p.worst.Group, n)
		ok = ok && float64(n) <= 20*scale
	} else {
		p.worst.Chat = max(p.worst.Chat, n)
		// A short burst is allowed.
		ok = ok && float64(n) <= scale*chatWindow.Seconds()+1
	}
	if !ok {
		p.over++
	}
	return ok
}

// allowCall is allow for a call that is no message: only the calls in all count it.
func (p *pace) allowCall(now time.Time, scale float64) bool {
	p.all = append(since(p.all, now.Add(-allWindow)), now)
	p.worst.All = max(p.worst.All, len(p.all))
	ok := float64(len(p.all)) <= 30*scale*allWindow.Seconds()
	if !ok {
		p.over++
	}
	return ok
}

// since drops the times before from.
func since(list []time.Time, from time.Time) []time.Time {
	for len(list) > 0 && list[0].Before(from) {
		list = list[1:]
	}
	return list
}

// TooFast returns how many calls broke a limit, and the worst windows.
func (f *Fake) TooFast() (int, Worst) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pace.over, f.pace.worst
}

// Calls returns the number of calls of each method.
func (f *Fake) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, f.calls)
	if f.asked > 0 {
		out["getUpdates"] = f.asked
	}
	return out
}
