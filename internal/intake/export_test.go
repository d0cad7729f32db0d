package intake

// Weight is what a body is said to need.
func (b *Body) Weight() int64 { return b.weight() }
