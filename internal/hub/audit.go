package hub

// Audit writes a line that says who did what, and what became of it. It must contain neither
// prompts nor secrets.
func (h *Hub) Audit(event string, attrs ...any) { h.Settings().Audit.Info(event, attrs...) }
