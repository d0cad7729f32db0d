package sim

// Faults are ways in which an instance misbehaves. The zero value is a healthy
// instance. See [Server.SetFault].
type Faults struct {
	// FailEvery makes every nth prompt, counted by runs, end with an
	// execution_error; 0 means never.
	FailEvery int
	// FailAfterStep makes every prompt end with an execution_error at its nth progress step; 0 means
	// never.
	FailAfterStep int
	// OOMEvery makes every nth prompt run out of GPU memory; 0 means never.
	OOMEvery int
	// Poisoned makes every prompt fail as after an error of the GPU's driver, which
	// only a new process gets rid of.
	Poisoned bool
	// HangAfterStep stops a run forever at its nth progress step, ignoring interrupts,
	// like a lost GPU. 0 means never.
	HangAfterStep int
	// DieAfterStep kills the process at the nth progress step; 0 means never. It is
	// reset once it has happened.
	DieAfterStep int
	// Mute drops all WebSocket frames except those of a new connection.
	Mute bool
	// Zombie simulates a dead worker thread: prompts are accepted, but none is run.
	Zombie bool
	// PromptError answers POST /prompt with 500 even though the prompt is queued.
	PromptError bool
	// RefusePrompt answers POST /prompt with 500 and queues nothing.
	RefusePrompt bool
	// SlowHTTP delays each HTTP answer, in milliseconds (times TimeScale).
	SlowHTTP int
}
