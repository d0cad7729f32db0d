// Package waits measures how long prompts wait: behind the hub, and behind what it replaces.
// All runs in simulated time, so that neither the machine nor its other work changes a figure.
package waits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// secret lets whoever posts name tenants.
const secret = "figures"

// rig is a fleet and somebody who posts prompts to it.
type rig struct {
	t   testing.TB
	w   *system.World
	web *http.Client
	// tenant is whom its posts are for; empty for the client that each names.
	tenant string
}

// inWorld runs something with a hub and instances, each behind an agent of its own.
func inWorld(t *testing.T, instances int, c system.Config, do func(r *rig)) {
	t.Helper()
	c.Hubs, c.Comfys, c.Agents, c.TenantSecret = 1, instances, instances, secret
	synctest.Test(t, func(t *testing.T) {
		w := system.New(t, c)
		defer w.Close()
		web := w.HTTP("poster")
		defer web.CloseIdleConnections()
		do(&rig{t: t, w: w, web: web})
	})
}

// played is a prompt of a schedule that has run.
type played struct {
	arrival
	id string
	// began is when it started; it had waited since it was posted.
	began  time.Time
	waited time.Duration
	// promised is in how long the hub expected it to be finished when it was posted; negative if
	// it did not say.
	promised time.Duration
}

// hub is a place for every prompt: the hub.
func (r *rig) hub(int) string { return r.w.Hubs[0].URL() }

// play posts prompts when they are due, each where a function says, waits for the end of all, and
// returns them.
func (r *rig) play(list []arrival, where func(n int) string) []played {
	all, posted, failed := make([]played, len(list)), make([]time.Time, len(list)), make([]error, len(list))
	places := map[string]bool{}
	begin := time.Now()
	var posts sync.WaitGroup
	for n, a := range list {
		<-time.After(time.Until(begin.Add(a.at)))
		place := where(n)
		places[place] = true
		posts.Go(func() {
			posted[n] = time.Now()
			all[n] = played{arrival: a}
			failed[n] = r.post(&all[n], place, a.body(fmt.Sprint("client", n), n))
		})
	}
	posts.Wait()
	require.NoError(r.t, errors.Join(failed...))
	began := map[string]time.Time{}
	for place := range places {
		r.empty(place)
		r.starts(place, began)
	}
	for n, p := range all {
		at, ok := began[p.id]
		require.True(r.t, ok, "prompt %d is in no history", n)
		all[n].began, all[n].waited = at, max(at.Sub(posted[n]), 0)
	}
	return all
}

// post posts a prompt, and learns its id and in how long it should be finished.
func (r *rig) post(p *played, place, body string) error {
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	header, err := r.call(http.MethodPost, place+"/prompt", body, &accepted)
	if err != nil {
		return err
	}
	p.id, p.promised = accepted.ID, -1
	if eta := header.Get("X-ComfyHub-Eta"); eta != "" {
		seconds, err := strconv.ParseFloat(eta, 64)
		p.promised = time.Duration(seconds * float64(time.Second))
		return err
	}
	return nil
}

// call makes a request and reads JSON into v, which may be nil.
func (r *rig) call(method, url, body string, v any) (http.Header, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.tenant != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
		request.Header.Set("X-ComfyHub-Tenant", r.tenant)
	}
	resp, err := r.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, url, resp.Status, answer)
	case v == nil:
		return resp.Header, nil
	}
	return resp.Header, json.Unmarshal(answer, v)
}

// empty waits until a place has nothing left to do.
func (r *rig) empty(place string) {
	for {
		var prompt struct {
			Info struct {
				Remaining int `json:"queue_remaining"`
			} `json:"exec_info"`
		}
		_, err := r.call(http.MethodGet, place+"/prompt", "", &prompt)
		require.NoError(r.t, err)
		if prompt.Info.Remaining == 0 {
			return
		}
		<-time.After(5 * time.Second)
	}
}

// starts adds when each prompt began that is in the history of a place.
func (r *rig) starts(place string, began map[string]time.Time) {
	var history map[string]struct {
		Status struct {
			Completed bool
			Messages  [][2]json.RawMessage
		}
	}
	_, err := r.call(http.MethodGet, place+"/history", "", &history)
	require.NoError(r.t, err)
	for id, entry := range history {
		require.True(r.t, entry.Status.Completed, "prompt %s did not succeed", id)
		var first struct{ Timestamp int64 }
		require.NoError(r.t, json.Unmarshal(entry.Status.Messages[0][1], &first))
		began[id] = time.UnixMilli(first.Timestamp)
	}
}

// mean is the mean wait of prompts.
func mean(all []played) time.Duration {
	var sum time.Duration
	for _, p := range all {
		sum += p.waited
	}
	return sum / time.Duration(len(all))
}
