package request

// earned reports whether the payment bought anything: a file was shown, or may have
// arrived, as there is a button that sends it again.
func (r *Record) earned() bool {
	if r.Outcome != Done {
		return false
	}
	for _, out := range r.Outputs {
		if out.State == Arrived || out.State == Unsure || out.State == TooBig && out.Link != "" {
			return true
		}
	}
	for _, text := range r.Texts {
		if text.Told && !text.Lost {
			return true
		}
	}
	return false
}
