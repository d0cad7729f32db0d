package dispatch

// A run goes through its phases in this order. Each has a type with what is done in it; what a phase
// has found out is in the run, where the later ones read it.
type (
	// preparation reads what is to run, and whether it may run here.
	preparation struct{ *run }
	// dividing splits a batch over several instances.
	dividing struct{ *run }
	// posting gives the instance the inputs and the prompt.
	posting struct{ *run }
	// repeating gives a job the result of an equal one.
	repeating struct{ *run }
	// adopting finds a run that somebody else began.
	adopting struct{ *run }
	// following passes on what the instance says until it has finished with the run.
	following struct{ *run }
	// looking judges a run whose instance says nothing.
	looking struct{ *run }
	// showing is what the client sees of the run.
	showing struct{ *run }
	// collecting fetches the results of a run that the instance has finished.
	collecting struct{ *run }
	// finishing ends the job, or returns it to the queue.
	finishing struct{ *run }
)
