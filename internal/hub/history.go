package hub

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// getHistory answers GET /history: entries by id, oldest first.
func (h *Hub) getHistory(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	var page queue.Page
	q := queryOf(r)
	for name, field := range map[string]**int{"max_items": &page.Max, "offset": &page.Offset} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(q.Get(name)))
		if err != nil {
			writeTrouble(w, r) // int() throws in ComfyUI
			return
		}
		*field = &n
	}
	entries, err := h.queue.History(r.Context(), a.tenant, page)
	if err != nil {
		h.fault(w, r, err)
		return
	}
	h.writeEntries(w, r, entries)
}

// getHistoryOf answers GET /history/{id}: {} while the job waits or runs and
// for unknown ids, never 404; pollers rely on it.
func (h *Hub) getHistoryOf(w http.ResponseWriter, r *http.Request, a asker, path []string) {
	entry, err := h.queue.HistoryEntry(r.Context(), a.tenant, path[0])
	if errors.Is(err, queue.ErrNotFound) {
		writeJSON(w, http.StatusOK, []byte("{}"))
		return
	}
	if err != nil {
		h.fault(w, r, err)
		return
	}
	h.writeEntries(w, r, []queue.Entry{entry})
}

func (h *Hub) writeEntries(w http.ResponseWriter, r *http.Request, entries []queue.Entry) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, e := range entries {
		body, err := e.JSON()
		if err != nil {
			h.log().Error("a history entry cannot be read", "job", e.Key, "error", err)
			continue // one broken entry must not break the listing
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.Write(pyjson.AppendString(nil, e.ID))
		b.WriteString(": ")
		if e.Number != "" {
			body = comfyui.RenumberEntry(body, e.Number)
		}
		b.Write(body)
	}
	b.WriteByte('}')
	writeListing(w, r, b.Bytes())
}

// postHistory answers POST /history: {"clear": true} and {"delete": [ids]}.
func (h *Hub) postHistory(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	order, ok := h.readOrder(w, r, a)
	if !ok {
		return
	}
	a.names(order.client)
	if order.clear {
		for _, caller := range h.callersOf(a) {
			if err := h.queue.ClearHistory(r.Context(), a.tenant, caller); err != nil {
				h.fault(w, r, err)
				return
			}
		}
	}
	if len(order.delete) > 0 {
		if err := h.queue.DeleteHistory(r.Context(), a.tenant, order.delete); err != nil {
			h.fault(w, r, err)
			return
		}
	}
	writeEmpty(w, http.StatusOK)
}
