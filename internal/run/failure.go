package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// failureOf reads the data of execution_error.
func failureOf(data []byte) comfyui.Failure {
	v, err := pyjson.Parse(data)
	if err != nil {
		return comfyui.Failure{}
	}
	o, _ := v.(*pyjson.Object)
	return comfyui.Failure{Type: o.String("exception_type"), Message: o.String("exception_message")}
}

// ofTorch reports whether the exception is of a kind that torch raises for errors of the driver:
// the text alone could come from anything.
func ofTorch(f comfyui.Failure) bool {
	return f.Type == "RuntimeError" || strings.HasPrefix(f.Type, "torch.")
}

// outOfMemory reports whether the GPU ran out of memory, by the rules of ComfyUI's is_oom.
func outOfMemory(f comfyui.Failure) bool {
	return ofTorch(f) && (strings.HasSuffix(f.Type, ".OutOfMemoryError") || strings.Contains(strings.ToLower(f.Message), "out of memory"))
}

// lasting are errors of the driver after which every further call of the process fails too. CUDA
// calls them sticky.
var lasting = []string{
	"illegal memory access", "illegal address", "illegal instruction", "misaligned address", "invalid program counter",
	"device-side assert triggered", "unspecified launch failure", "launch timed out", "uncorrectable ecc error",
	"hardware stack error", "unknown error", "context is destroyed",
}

// poisons reports whether the instance's process can run nothing more after the failure.
func poisons(f comfyui.Failure) bool {
	text := strings.ToLower(f.Message)
	if !ofTorch(f) || !strings.Contains(text, "cuda error: ") && !strings.Contains(text, "hip error: ") {
		return false
	}
	return slices.ContainsFunc(lasting, func(what string) bool { return strings.Contains(text, what) })
}

// failed decides whether it was the instance's fault that a run ended with an error. The result is
// undecided if the error is the job's own.
func (r collecting) failed(ctx context.Context, f comfyui.Failure) result {
	switch {
	case r.wish != wanted || r.stop.cause != notStopped:
		return result{}
	case poisons(f):
		r.log.Error("the instance's GPU process is broken until it is restarted", "node", r.node)
		r.d.Fleet.SetBroken(r.conn.Name, "its GPU reports an error that only a restart ends")
		if err := r.conn.Client.Restart(ctx); err != nil {
			r.log.Warn("instance is not restarted", "error", err)
		}
		return result{kind: killed, reason: "its GPU reported an error" + r.where()}
	case outOfMemory(f):
		return r.tooLarge(ctx)
	}
	return r.failedHere()
}

// tooLarge handles a run that ran out of memory. The job goes to an instance with more memory if
// there is one, else once more to one of this size: models that other prompts have left there are
// unloaded first.
func (r collecting) tooLarge(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.conn.Client.Free(ctx, true, true); err != nil {
		r.log.Debug("cannot free the instance's memory", "error", err)
	}
	r.conn.Loads(nil)
	j, had := r.Job(), r.d.Reports.Memory(r.conn)
	larger := r.d.Memory.larger(r.Run, had)
	r.log.Warn("the instance ran out of memory", "vram", had, "larger", len(larger))
	if len(larger) == 0 && (len(j.Lost) > 0 || r.missed.messages) {
		return result{}
	}
	r.conn.Ended(r.billed())
	r.d.Memory.note(j.Key, r.body.Prompt, need{had, larger})
	return result{kind: lost, cause: OutOfMemory, reason: "out of memory" + r.where()}
}

// failedHere decides whether the client is told of a run's error, as ComfyUI would do. It is,
// unless the last runs on this instance have all failed while others do their work: then another
// instance has the last word.
func (r collecting) failedHere() result {
	j := r.Job()
	if r.d.Health.agreed(r.conn.Name, j) || !finishing(r).cameToNothing(Failed) || len(j.FailedAt) > 0 {
		return result{}
	}
	r.conn.Ended(r.billed())
	return result{kind: excused, cause: Failed, elsewhere: true, reason: "it ended with an error" + r.where() + ", as the runs before it have there"}
}
