package request

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// PictureKind is the kind of the records of which outputs a message shows, by MessageName,
// for people who reply to a picture. It is separate from MessageKind, in which older
// bridges expect only an id.
const PictureKind = "picture"

// Shown is which pictures of a request one of the bridge's messages shows. Older and newer
// bridges read its JSON.
type Shown struct {
	Request string `json:"request"`
	// Outputs are indices of outputs.
	Outputs []int `json:"outputs"`
}

// noteShown records which pictures of the request the messages with outputs show, for
// replies to them. If that fails, only such replies do not work.
func (j *job) noteShown(ctx context.Context, in platform.Chat, group ...*Output) {
	at := map[string][]int{}
	for i := range j.rec.Outputs {
		if out := &j.rec.Outputs[i]; out.Message != "" && slices.Contains(group, out) {
			at[out.Message] = append(at[out.Message], i)
		}
	}
	for message, outputs := range at {
		j.noteMessage(ctx, in, message, outputs...)
	}
}

// noteMessage does the same for one message.
func (j *job) noteMessage(ctx context.Context, in platform.Chat, message string, outputs ...int) {
	name := MessageName(j.rec.Platform, in.ID, message)
	err := j.r.o.Store.Put(ctx, MessageKind, name, j.rec.ID, PictureKeep)
	outputs = slices.DeleteFunc(outputs, func(i int) bool { return !isPicture(j.rec.Outputs[i].Ref.Filename) })
	if err == nil && len(outputs) > 0 {
		err = j.r.o.Store.Put(ctx, PictureKind, name, Shown{Request: j.rec.ID, Outputs: outputs}, PictureKeep)
	}
	if err != nil {
		j.r.o.Logger.Warn("cannot note what a message shows", "request", j.rec.ID, "error", err)
	}
}
