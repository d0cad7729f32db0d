package sim

import (
	"net/http"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// typePanel is the type of the simulated custom node's message.
const typePanel = "simulated.panel"

// callPanel is the kind of route that custom nodes add. It answers at once, and
// later sends a message to the client id given in its query, its path or its JSON
// body. With all=1 the message goes to everybody. A `progress` message to the
// client follows, as from nodes that run prompts of their own.
func (p *process) callPanel(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	sid := query.Get("client_id")
	if sid == "" {
		sid = query.Get("clientId")
	}
	if sid == "" {
		sid = r.PathValue("sid")
	}
	if r.ContentLength > 0 {
		body, ok := p.readJSON(w, r)
		if !ok {
			return
		}
		o, _ := body.(*pyjson.Object)
		sid = o.String("client_id")
	}
	after, err := strconv.ParseFloat(query.Get("after"), 64)
	if err != nil {
		after = 0.05
	}
	to := &sid
	if query.Get("all") == "1" {
		to = nil
	}
	time.AfterFunc(time.Duration(after*float64(time.Second)), func() {
		p.hub.publish(to, panelMessage(typePanel, pyjson.Member{Key: "sid", Value: pyjson.String(sid)},
			pyjson.Member{Key: "text", Value: pyjson.String("done")}))
		if to != nil {
			p.hub.publish(to, panelMessage("progress", pyjson.Member{Key: "value", Value: pyjson.Int(1)},
				pyjson.Member{Key: "max", Value: pyjson.Int(1)}, pyjson.Member{Key: "prompt_id", Value: pyjson.String("x")},
				pyjson.Member{Key: "node", Value: pyjson.String("1")}))
		}
	})
	answerJSON(w, http.StatusOK, pyjson.NewObject(pyjson.Member{Key: "sid", Value: pyjson.String(sid)}))
}

func panelMessage(kind string, data ...pyjson.Member) *pyjson.Object {
	return pyjson.NewObject(pyjson.Member{Key: "type", Value: pyjson.String(kind)},
		pyjson.Member{Key: "data", Value: pyjson.NewObject(data...)})
}
