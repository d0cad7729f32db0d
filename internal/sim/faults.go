package sim

// Faults are ways in which an instance misbehaves. The zero value is a healthy
// one. See [Server.SetFault].
type Faults struct {
	// FailEvery makes every nth prompt, counted by runs, end with an
	// execution_error; 0 is never.
	FailEvery int
	// OOMEvery makes every nth prompt run out of GPU memory; 0 is never.
	OOMEvery int
	// HangAfterStep stops a run for ever at its nth progress step, deaf to
	// interrupts, as a lost GPU does; 0 is never.
	HangAfterStep int
	// DieAfterStep kills the process at the nth progress step; 0 is never. It
	// is taken back when it has happened once.
	DieAfterStep int
	// Mute drops all WebSocket frames except those of a new connection.
	Mute bool
	// Zombie plays a dead worker thread: prompts are accepted, none is run.
	Zombie bool
	// PromptError answers POST /prompt with 500 although the prompt is queued.
	PromptError bool
	// RefusePrompt answers POST /prompt with 500 and queues nothing.
	RefusePrompt bool
	// SlowHTTP delays each HTTP answer, in milliseconds (times TimeScale).
	SlowHTTP int
}
