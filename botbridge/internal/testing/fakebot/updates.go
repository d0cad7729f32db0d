package fakebot

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// update is an update that the bot has not taken yet.
type update struct {
	id   int64
	body map[string]any
}

// hook is the webhook that updates are delivered to, if one is set.
type hook struct {
	url, secret string
	running     bool
}

// delivery brings updates to the bot.
type delivery struct {
	*place

	nextUpd int64
	updates []update
	arrived chan struct{} // closed when there is a new update
	polls   int
	asked   int      // how often the bot has polled
	allowed []string // kinds of updates; nil for all
	hook    hook
	wg      sync.WaitGroup
}

// push adds an update. The caller holds mu.
func (f *delivery) push(kind string, content any) int64 {
	if f.allowed != nil && !slices.Contains(f.allowed, kind) {
		return f.nextUpd // the bot has not asked for it
	}
	f.nextUpd++
	f.updates = append(f.updates, update{f.nextUpd, map[string]any{"update_id": f.nextUpd, kind: content}})
	close(f.arrived)
	f.arrived = make(chan struct{})
	return f.nextUpd
}

// getUpdates is a long poll. A second one at the same time is a conflict.
func (f *delivery) getUpdates(w http.ResponseWriter, r *http.Request, c *call) {
	f.mu.Lock()
	f.asked++
	if f.hook.url != "" || f.polls > 0 {
		f.mu.Unlock()
		fail(w, http.StatusConflict, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
		return
	}
	f.polls++
	defer func() {
		f.mu.Lock()
		f.polls--
		f.mu.Unlock()
	}()
	f.allow(c)
	offset := c.int64("offset")
	for len(f.updates) > 0 && f.updates[0].id < offset {
		f.updates = f.updates[1:]
	}
	timeout := time.NewTimer(time.Duration(c.int("timeout")) * time.Second)
	defer timeout.Stop()
	for len(f.updates) == 0 {
		arrived := f.arrived
		f.mu.Unlock()
		select {
		case <-arrived:
			f.mu.Lock()
			continue
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

// allow notes which updates the bot asks for. The caller holds mu.
func (f *delivery) allow(c *call) {
	var list []string
	if json.Unmarshal([]byte(c.params["allowed_updates"]), &list) == nil && len(list) > 0 {
		f.allowed = list
	}
}

func (f *delivery) setWebhook(c *call) {
	f.allow(c)
	running := f.hook.running
	f.hook = hook{url: c.params["url"], secret: c.params["secret_token"], running: true}
	if !running {
		f.wg.Go(f.deliver)
	}
}

// deliver sends updates to the webhook one at a time, each until it is accepted.
func (f *delivery) deliver() {
	for {
		f.mu.Lock()
		to, arrived := f.hook, f.arrived
		var next *update
		if len(f.updates) > 0 {
			next = &f.updates[0]
		}
		if to.url == "" {
			f.hook.running = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		if next == nil {
			select {
			case <-arrived:
				continue
			case <-f.done:
				return
			}
		}
		if f.post(to, next.body) {
			f.mu.Lock()
			f.updates = f.updates[1:]
			f.mu.Unlock()
			continue
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-f.done:
			return
		}
	}
}

func (f *delivery) post(to hook, body any) bool {
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
