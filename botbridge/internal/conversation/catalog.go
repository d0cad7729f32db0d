package conversation

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

const (
	// catalogKeep is how long an answer of the hub about a node class is used.
	catalogKeep = 5 * time.Minute
	// catalogPause is how long the hub is not asked again after a failure.
	catalogPause = 10 * time.Second
	// catalogTimeout bounds how long a message waits for the answer.
	catalogTimeout = 10 * time.Second
)

// catalogs caches what the fleet accepts for the inputs that messages can set. It is
// bounded by the node classes in bot.yaml's workflows.
type catalogs struct {
	hub *hubapi.Client

	mu     sync.Mutex
	parts  map[string]*workflow.Catalog // by class
	asked  map[string]time.Time
	failed map[string]time.Time
}

func newCatalogs(hub *hubapi.Client) *catalogs {
	return &catalogs{hub: hub, parts: map[string]*workflow.Catalog{}, asked: map[string]time.Time{}, failed: map[string]time.Time{}}
}

// of returns what is known about classes, from the last answer while the hub does not
// respond.
func (c *catalogs) of(ctx context.Context, classes []string) *workflow.Catalog {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	var known []*workflow.Catalog
	for _, class := range classes {
		if part := c.one(ctx, class); part != nil {
			known = append(known, part)
		}
	}
	return workflow.Join(known...)
}

func (c *catalogs) one(ctx context.Context, class string) *workflow.Catalog {
	c.mu.Lock()
	part, fresh := c.parts[class], time.Since(c.asked[class]) < catalogKeep || time.Since(c.failed[class]) < catalogPause
	c.mu.Unlock()
	if fresh {
		return part
	}
	body, err := c.hub.ObjectInfoOf(ctx, class)
	var read *workflow.Catalog
	if err == nil {
		read, err = workflow.ParseCatalog(body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed[class] = time.Now()
		return part
	}
	c.parts[class], c.asked[class] = read, time.Now()
	return read
}
