package run

// A run goes through its phases in this order. Each has a type with what is done in it; what a phase
// has found out is in the run, where the later ones read it.
type (
	// preparation reads what is to run, and whether it may run here.
	preparation struct{ *Run }
	// dividing splits a batch over several instances.
	dividing struct{ *Run }
	// posting gives the instance the inputs and the prompt.
	posting struct{ *Run }
	// repeating gives a job the result of an equal one.
	repeating struct{ *Run }
	// adopting finds a run that somebody else began.
	adopting struct{ *Run }
	// following passes on what the instance says until it has finished with the run.
	following struct{ *Run }
	// looking judges a run whose instance says nothing.
	looking struct{ *Run }
	// showing is what the client sees of the run.
	showing struct{ *Run }
	// collecting fetches the results of a run that the instance has finished.
	collecting struct{ *Run }
	// finishing ends the job, or returns it to the queue.
	finishing struct{ *Run }
)
