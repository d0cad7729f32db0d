package hub

import (
	"context"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// insight is what an requester may learn of what is not his own.
type insight struct {
	// whole says that addresses, reasons and numbers of everybody are shown: to
	// everybody where nobody logs in, else only to callers that may speak for
	// every tenant and speak for none.
	whole bool
	// words replaces addresses of instances by their names.
	words *strings.Replacer
	// running are the requester's own prompts by instance.
	running map[string]string
}

// insightOf says what an requester may learn.
func (h *Hub) insightOf(a api.Requester) insight {
	in := insight{whole: !a.Login && (a.Trusted || !h.logins.lately())}
	if in.whole {
		in.words = strings.NewReplacer()
		return in
	}
	var pairs []string
	for _, i := range h.fleet.Instances() {
		_, address, _ := strings.Cut(i.URL, "://")
		address, _, _ = strings.Cut(address, "/")
		if address != "" {
			pairs = append(pairs, i.URL, i.Name, address, i.Name)
		}
	}
	in.words = strings.NewReplacer(pairs...)
	return in
}

// ofInstances is insightOf for a listing of instances. While Redis is away no
// running prompt is shown.
func (h *Hub) ofInstances(ctx context.Context, a api.Requester, instances []fleet.Instance) insight {
	in := h.insightOf(a)
	var keys []string
	for _, i := range instances {
		if i.Report.Job != "" {
			keys = append(keys, i.Report.Job)
		}
	}
	if len(keys) == 0 {
		return in
	}
	jobs, err := h.queue.GetAll(ctx, keys)
	if err != nil {
		h.log().Debug("cannot tell whose prompts run", "error", err)
	}
	in.running = map[string]string{}
	for _, j := range jobs {
		if j.Tenant == a.Tenant && j.State.Live() {
			in.running[j.Run.Instance] = j.ID
		}
	}
	return in
}

// of is an instance as the requester may see it.
func (in insight) of(i fleet.Instance) fleet.Instance {
	i.Running = in.running[i.Name]
	if !in.whole {
		i.URL, i.Reason = "", ""
	}
	return i
}
