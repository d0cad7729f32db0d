package comfy

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
	"github.com/comfyhub/comfyhub/internal/view"
)

// getHistory answers GET /history: entries by id, oldest first.
func (l lists) getHistory(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	var page view.HistoryPage
	q := api.QueryOf(r)
	for name, field := range map[string]**int{"max_items": &page.Max, "offset": &page.Offset} {
		if !q.Has(name) {
			continue
		}
		n, ok := python.ClampedInt(q.Get(name))
		if !ok {
			api.WriteInternalError(w, r) // int() throws in ComfyUI
			return
		}
		*field = &n
	}
	entries, err := l.hub().Jobs.History(r.Context(), a.Tenant, page)
	if err != nil {
		l.Fail(w, r, err)
		return
	}
	if l.writeEntries(w, r, a, entries) == nil {
		l.receipts.listed(a, entries)
	}
}

// getHistoryOf answers GET /history/{id}: {} while the job waits or runs and
// for unknown ids, never 404; pollers rely on it.
func (l lists) getHistoryOf(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	entry, err := l.hub().Jobs.HistoryEntry(r.Context(), a.Tenant, path[0])
	if errors.Is(err, view.ErrNoJob) {
		api.WriteJSON(w, http.StatusOK, []byte("{}"))
		return
	}
	if err != nil {
		l.Fail(w, r, err)
		return
	}
	if l.writeEntries(w, r, a, []view.HistoryEntry{entry}) == nil {
		l.receipts.fetched(a, entry)
	}
}

func (l lists) writeEntries(w http.ResponseWriter, r *http.Request, a api.Requester, entries []view.HistoryEntry) error {
	list := l.newListing(a, nil)
	defer list.close()
	var err error
	list.text("{")
	separator := ""
	for _, e := range entries {
		if err = list.entry(r.Context(), separator, e); err != nil {
			break
		}
		separator = ", "
	}
	list.text("}")
	list.answer(w, r, err)
	return err
}

// entry writes an entry of the history.
func (l *listing) entry(ctx context.Context, separator string, e view.HistoryEntry) error {
	release, err := l.Intake.Reserve(ctx, l.share, 3*e.Size())
	if err != nil {
		return err
	}
	defer release()
	body, err := e.JSON()
	if err != nil {
		// One broken entry must not break the listing.
		l.Log().Error("a history entry cannot be read", "job", e.Key, "error", err)
		body = []byte("{}")
	}
	if e.Number != "" {
		body = comfyui.RenumberEntry(body, e.Number)
	}
	l.text(separator)
	l.write(pyjson.AppendString(nil, e.ID))
	l.text(": ")
	l.write(body)
	return l.err
}

// postHistory answers POST /history: {"clear": true} and {"delete": [ids]}.
func (l lists) postHistory(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	order, ok := readOrder(l.Requests, w, r, a)
	if !ok {
		return
	}
	a.SetClient(order.client)
	if order.clear {
		if err := l.hub().Jobs.ClearHistory(r.Context(), a.Tenant, l.Recent.Owner(a)); err != nil {
			l.Fail(w, r, err)
			return
		}
	}
	if err := l.hub().Jobs.DeleteHistory(r.Context(), a.Tenant, order.delete); err != nil {
		l.Fail(w, r, err)
		return
	}
	api.WriteEmpty(w, http.StatusOK)
}
