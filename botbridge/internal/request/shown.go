package request

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// PictureKind is the kind of values that say which outputs a message shows, by
// MessageName: people answer to a picture when they want it changed. It stands beside
// MessageKind, of which older bridges read no more than the id.
const PictureKind = "picture"

// Shown says which pictures of a request a message of the bridge shows. Older and newer
// bridges read its JSON.
type Shown struct {
	Request string `json:"request"`
	// Outputs are numbers of outputs, from 0.
	Outputs []int `json:"outputs"`
}

// noteShown remembers which request the messages with outputs in a chat are of, and which
// pictures they show, for what people answer to them. Without the notes only that does not
// work.
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

// noteMessage notes the same of one message.
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
