package request

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	// PictureKind is the kind of values that say which outputs a message shows, by
	// MessageName: people answer to a picture when they want it changed.
	PictureKind = "picture"
	// pictureKeep is how long that is known: as long as the request is.
	pictureKeep = 7 * 24 * time.Hour
)

// Shown says which pictures of a request a message of the bridge shows. Older and newer
// bridges read its JSON.
type Shown struct {
	Request string `json:"request"`
	// Outputs are numbers of outputs, from 0.
	Outputs []int `json:"outputs"`
}

// noteShown remembers where pictures are in a chat. Without it an answer to one works too, where
// the platform hands the picture over.
func (j *job) noteShown(ctx context.Context, in platform.Chat, group []*Output) {
	at := map[string][]int{}
	for i := range j.rec.Outputs {
		for _, out := range group {
			if out == &j.rec.Outputs[i] && out.Message != "" && isPicture(out.Ref.Filename) {
				at[out.Message] = append(at[out.Message], i)
			}
		}
	}
	for message, outputs := range at {
		shown := Shown{Request: j.rec.ID, Outputs: outputs}
		if err := j.r.o.Store.Put(ctx, PictureKind, MessageName(j.rec.Platform, in.ID, message), shown, pictureKeep); err != nil {
			j.r.o.Logger.Warn("cannot note which pictures a message shows", "error", err)
		}
	}
}
