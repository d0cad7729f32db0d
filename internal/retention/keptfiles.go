package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
)

const (
	// tellKeptAfter is how long outputs are gathered before an agent is told of them, and
	// tellKeptTimeout bounds a message.
	tellKeptAfter, tellKeptTimeout = 2 * time.Second, 10 * time.Second
	// maxUntold bounds the outputs of one instance that its agent has not been told of yet. Any
	// more stay on their machine, which does no harm.
	maxUntold = 10_000
)

// KeptFiles tells agents which output files the hub has copied, so that they can delete theirs.
// What an agent is not told of stays on its machine.
type KeptFiles struct {
	// Wants reports whether an instance's agent deletes files.
	Wants  func(instance string) bool
	Client func(instance string) *comfyui.Client
	log    *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	work panics.Group

	mu     sync.Mutex
	untold map[string][]comfyui.KeptFile
	// due says that a message will be sent.
	due bool
}

// NewKeptFiles tells agents what is added. wants reports whether an instance's agent deletes files.
func NewKeptFiles(wants func(string) bool, client func(string) *comfyui.Client, log *slog.Logger) *KeptFiles {
	k := &KeptFiles{Wants: wants, Client: client, log: log, untold: map[string][]comfyui.KeptFile{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Add notes that the hub has copied an output. It does not wait.
func (k *KeptFiles) Add(src files.Source, sha256 string) {
	if src.Type != job.TypeOutput || src.ETag == "" || !k.Wants(src.Instance) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.untold[src.Instance]) >= maxUntold {
		return
	}
	k.untold[src.Instance] = append(k.untold[src.Instance], comfyui.KeptFile{Subfolder: src.Subfolder, Filename: src.Filename, ETag: src.ETag, SHA256: sha256})
	k.schedule()
}

// schedule makes sure that the agents are told soon. The caller holds the lock.
func (k *KeptFiles) schedule() {
	if k.due || k.ctx.Err() != nil {
		return
	}
	k.due = true
	k.work.Go(k.log, "telling agents what the hub keeps", func() {
		select {
		case <-time.After(tellKeptAfter):
		case <-k.ctx.Done():
		}
		k.tell()
	})
}

// tell tells each agent what it has not been told yet.
func (k *KeptFiles) tell() {
	k.mu.Lock()
	all := k.untold
	k.untold, k.due = map[string][]comfyui.KeptFile{}, false
	k.mu.Unlock()
	var group sync.WaitGroup
	for instance, list := range all {
		group.Go(func() {
			_ = panics.Do(k.log, "telling an agent what the hub keeps", func() error { // it is logged
				if rest := k.send(instance, list); len(rest) > 0 {
					k.back(instance, rest)
				}
				return nil
			})
		})
	}
	group.Wait()
}

// send returns what could not be sent and is worth another try.
func (k *KeptFiles) send(instance string, list []comfyui.KeptFile) []comfyui.KeptFile {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), tellKeptTimeout)
	defer cancel()
	for len(list) > 0 {
		client := k.Client(instance)
		if client == nil {
			return list
		}
		n := min(len(list), comfyui.MaxKept)
		err := client.Kept(ctx, list[:n])
		var status *comfyui.StatusError
		if errors.As(err, &status) && status.Status < 500 {
			return nil // it no longer deletes any
		}
		if err != nil {
			k.log.Debug("cannot tell an agent which files the hub keeps", "instance", instance, "error", err)
			return list
		}
		list = list[n:]
	}
	return nil
}

// back takes back what could not be sent, as far as there is room and the agent still wants it.
func (k *KeptFiles) back(instance string, list []comfyui.KeptFile) {
	if !k.Wants(instance) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	list = append(list, k.untold[instance]...)
	k.untold[instance] = list[:min(len(list), maxUntold)]
	k.schedule()
}

// Close tells agents the rest, and ends.
func (k *KeptFiles) Close() {
	k.stop()
	k.work.Wait()
}
