package conversation

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

const (
	// catalogKeep is how long what the fleet says of a node class is not asked again.
	catalogKeep = 5 * time.Minute
	// catalogPause is how long it is not asked again after no answer.
	catalogPause = 10 * time.Second
	// catalogTimeout bounds how long a message waits for it.
	catalogTimeout = 10 * time.Second
)

// catalogs are what the fleet says of the node classes whose inputs messages set: no
// more than the workflows of bot.yaml name.
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

// of returns what is known of classes. While the hub does not answer, that is what it
// said before.
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
