package fakebot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// update is an update that the bot has not taken yet.
type update struct {
	id int64
	// queue is what the updates of which the webhook gets one at a time have in common: the
	// messages of a chat, or the presses of a person.
	queue string
	at    time.Time
	body  map[string]any
}

// hook is the webhook that updates are delivered to, if one is set.
type hook struct {
	url, secret string
	most        int // deliveries at once
}

const (
	// maxHooks is how many updates the webhook gets at once, unless it wants fewer.
	maxHooks = 40
	// conflictPause is the shortest time between two answers that polls conflict.
	conflictPause = 3 * time.Second
	// pressKeep is how long a press can be answered, and is delivered at all.
	pressKeep = 150 * time.Second
)

// delivery brings updates to the bot.
type delivery struct {
	*place

	nextUpd    int64
	updates    []update
	arrived    chan struct{} // closed when there is a new update
	replaced   chan struct{} // closed when another poll takes over; nil without a poll
	conflictAt time.Time
	asked      int      // how often the bot has polled
	allowed    []string // kinds of updates; nil for all
	hook       hook
	posting    map[string]bool // queues of which an update is on its way
	wg         sync.WaitGroup
}

// push adds an update. The caller holds mu.
func (f *delivery) push(kind string, content map[string]any) int64 {
	if f.allowed != nil && !slices.Contains(f.allowed, kind) {
		return f.nextUpd // the bot has not asked for it
	}
	f.nextUpd++
	shared := "chat"
	if strings.HasSuffix(kind, "_query") {
		shared = "from"
	}
	queue := fmt.Sprint(shared, content[shared].(map[string]any)["id"])
	f.updates = append(f.updates, update{f.nextUpd, queue, time.Now(), map[string]any{"update_id": f.nextUpd, kind: content}})
	close(f.arrived)
	f.arrived = make(chan struct{})
	f.post()
	return f.nextUpd
}

// getUpdates is a long poll. It ends the one before.
func (f *delivery) getUpdates(w http.ResponseWriter, r *http.Request, c *call) {
	f.mu.Lock()
	f.asked++
	if f.hook.url != "" {
		f.mu.Unlock()
		fail(w, http.StatusConflict, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first")
		return
	}
	if f.replaced != nil {
		close(f.replaced)
	}
	mine := make(chan struct{})
	f.replaced = mine
	defer func() {
		f.mu.Lock()
		if f.replaced == mine {
			f.replaced = nil
		}
		f.mu.Unlock()
	}()
	f.allow(c)
	offset := c.int64("offset")
	f.updates = slices.DeleteFunc(f.updates, func(u update) bool {
		return u.id < offset || u.body["callback_query"] != nil && time.Since(u.at) > pressKeep
	})
	timeout := time.NewTimer(time.Duration(c.int("timeout")) * time.Second)
	defer timeout.Stop()
	for len(f.updates) == 0 {
		arrived := f.arrived
		f.mu.Unlock()
		select {
		case <-arrived:
			f.mu.Lock()
			continue
		case <-mine:
			f.conflict(w)
			return
		case <-timeout.C:
		case <-r.Context().Done():
		case <-f.done:
		}
		answer(w, http.StatusOK, map[string]any{"ok": true, "result": []any{}})
		return
	}
	list := []any{}
	for _, u := range f.updates[:min(len(f.updates), 100)] {
		list = append(list, u.body)
	}
	f.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"ok": true, "result": list})
}

// conflict ends a poll that another one has replaced, not too soon after the last one.
func (f *delivery) conflict(w http.ResponseWriter) {
	f.mu.Lock()
	wait := time.Until(f.conflictAt)
	f.conflictAt = time.Now().Add(max(0, wait) + conflictPause)
	f.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-f.done:
	}
	fail(w, http.StatusConflict, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
}

// allow notes which updates the bot asks for. The caller holds mu.
func (f *delivery) allow(c *call) {
	var list []string
	if json.Unmarshal([]byte(c.params["allowed_updates"]), &list) == nil && len(list) > 0 {
		f.allowed = list
	}
}

// setWebhook sets where updates go, and ends a poll. The caller holds mu.
func (f *delivery) setWebhook(c *call) {
	f.allow(c)
	most := c.int("max_connections")
	if most < 1 {
		most = maxHooks
	}
	f.hook = hook{url: c.params["url"], secret: c.params["secret_token"], most: most}
	if f.replaced != nil {
		close(f.replaced)
		f.replaced = nil
	}
	f.post()
}

// post brings what it may to the webhook, each update until it is taken. The caller holds mu.
func (f *delivery) post() {
	for i := 0; f.hook.url != "" && i < len(f.updates) && len(f.posting) < f.hook.most; i++ {
		next := f.updates[i]
		if f.posting[next.queue] {
			continue
		}
		f.posting[next.queue] = true
		f.wg.Go(func() { f.deliver(next) })
	}
}

// deliver brings one update to the webhook, and then lets others go.
func (f *delivery) deliver(u update) {
	for {
		f.mu.Lock()
		to := f.hook
		f.mu.Unlock()
		if to.url == "" || f.call(to, u.body) {
			f.mu.Lock()
			if to.url != "" {
				f.updates = slices.DeleteFunc(f.updates, func(other update) bool { return other.id == u.id })
			}
			delete(f.posting, u.queue)
			f.post()
			f.mu.Unlock()
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-f.done:
			return
		}
	}
}

func (f *delivery) call(to hook, body any) bool {
	data, err := json.Marshal(body)
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, bytes.NewReader(data))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Telegram-Bot-Api-Secret-Token", to.secret)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
