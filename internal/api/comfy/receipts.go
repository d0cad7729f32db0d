package comfy

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/view"
)

// maxFetched bounds the prompts of one listing that count as read.
const maxFetched = 256

// receipts notes which ends of prompts a client has read over HTTP.
type receipts struct{ shared }

// fetched notes that the requester was answered with the end of a prompt that it
// named: its next socket must not be told again.
func (r receipts) fetched(a api.Requester, e view.HistoryEntry) {
	r.hub().Ends.Fetched(a.Tenant, r.Recent.Clients(a), []string{e.ID})
}

// listed notes that the requester was answered with the history. Of several clients
// at one place it was one, and another may still wait for its end.
func (r receipts) listed(a api.Requester, entries []view.HistoryEntry) {
	clients := r.Recent.Clients(a)
	if len(clients) != 1 {
		return
	}
	ids := make([]string, 0, min(len(entries), maxFetched))
	for _, e := range entries[max(len(entries)-maxFetched, 0):] { // the newest are last
		ids = append(ids, e.ID)
	}
	r.hub().Ends.Fetched(a.Tenant, clients, ids)
}
