// Package overflow runs jobs at serverless endpoints elsewhere, which cost money by the second. To
// the dispatcher each of an endpoint's slots is a ComfyUI server, see package facade; behind it is
// RunPod's API, or any service that keeps to a small contract.
//
// Money is what this package is careful about. What was asked of an endpoint is stored before it is
// asked, by job, so that whatever dies meanwhile, no job is paid for twice: a later attempt goes on
// with the run that is there, and where nobody can say whether there is one, the job does not go to
// an endpoint again.
package overflow
