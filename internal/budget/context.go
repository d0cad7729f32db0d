package budget

import "context"

type holderKey struct{}

// With returns a context that carries the holder of a request.
func With(ctx context.Context, h *Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// From returns the holder of a request; nil, which counts nothing, outside of one.
func From(ctx context.Context) *Holder {
	h, _ := ctx.Value(holderKey{}).(*Holder)
	return h
}

// Relay says that whoever reads a request's body counts what it keeps of it, or keeps
// nothing. Otherwise all that is read counts as kept on disk.
func (h *Holder) Relay() {
	if h == nil {
		return
	}
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.relayed = true
}

// Relayed reports whether Relay was called.
func (h *Holder) Relayed() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	return h.relayed
}
