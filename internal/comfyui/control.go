package comfyui

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Interrupt stops the running prompt. With an id, servers from 0.3.57 on stop
// only that one; older ones stop whatever runs, as all do when id is empty.
func (c *Client) Interrupt(ctx context.Context, id string) error {
	body := pyjson.NewObject()
	if id != "" {
		body.Set("prompt_id", pyjson.String(id))
	}
	return c.wire.post(ctx, "/interrupt", pyjson.Marshal(body))
}

// DeleteQueued removes waiting prompts. Unknown and running ones are not touched
// and are no error.
func (c *Client) DeleteQueued(ctx context.Context, ids ...string) error {
	return c.wire.deleteFrom(ctx, "/queue", ids)
}

// DeleteHistory makes the instance forget prompts that have ended.
func (c *Client) DeleteHistory(ctx context.Context, ids ...string) error {
	return c.wire.deleteFrom(ctx, "/history", ids)
}

func (w *wire) deleteFrom(ctx context.Context, path string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	body := pyjson.NewObject(pyjson.Member{Key: "delete", Value: pyjson.Strings(ids)})
	return w.post(ctx, path, pyjson.Marshal(body))
}

// Free asks the instance to unload its models, and with memory also to drop
// its cache of node results.
func (c *Client) Free(ctx context.Context, models, memory bool) error {
	return c.wire.post(ctx, "/free", pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "unload_models", Value: pyjson.Bool(models)},
		pyjson.Member{Key: "free_memory", Value: pyjson.Bool(memory)},
	)))
}

// SubscribeLogs asks the instance to send its log lines to the socket of a
// client id, or to stop that.
func (c *Client) SubscribeLogs(ctx context.Context, sid string, enabled bool) error {
	r := jsonRequest("/internal/logs/subscribe", pyjson.Marshal(pyjson.NewObject(
		pyjson.Member{Key: "clientId", Value: pyjson.String(sid)},
		pyjson.Member{Key: "enabled", Value: pyjson.Bool(enabled)},
	)))
	r.method = http.MethodPatch
	_, err := c.wire.read(ctx, r)
	return err
}

// RestartPath is where an agent takes orders to restart an instance; the
// instance's name follows. It lies outside of the paths that are passed on to
// instances, so that no client of a hub can reach it.
const RestartPath = "/restart/"

// IsReboot reports whether a request asks ComfyUI-Manager to restart the server. Older
// versions take GET, newer ones POST.
func IsReboot(method string, u *url.URL) bool {
	if method != http.MethodGet && method != http.MethodPost {
		return false
	}
	asked, err := aiohttp.ReadPath(u)
	return err == nil && slices.Contains(reboots, asked.Bare().String())
}

// reboots are the paths of all versions of ComfyUI-Manager.
var reboots = []string{"/manager/reboot", "/v2/manager/reboot"}

// InstancePath is where an agent serves an instance; its name follows.
const InstancePath = "/i/"

// Restart asks the agent to restart the instance's process, for one that
// answers but does not work. Agents without a restart command, and instances
// without an agent, answer with a *[StatusError].
func (c *Client) Restart(ctx context.Context) error { return c.wire.postAgent(ctx, RestartPath, nil) }
