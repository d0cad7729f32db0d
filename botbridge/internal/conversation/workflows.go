package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

const (
	// infoWords bounds how much of the prompt is shown, in characters. The workflow has all
	// of it.
	infoWords = 1500
	// infoTimeout bounds the wait for the hub's details about a run.
	infoTimeout = 5 * time.Second
)

// workflows sends users the graphs of their pictures.
type workflows struct {
	hub      *hubapi.Client
	logger   *slog.Logger
	commands *repertoire
	menu     *pictureMenu
	recipes  *recipes
}

// info answers /info: it says how the picture that is replied to was made, and sends its
// workflow. Of a picture that the bridge has not made, it says what its file says.
func (wf *workflows) info(ctx context.Context, tn *turn) error {
	if told, err := wf.recipes.info(ctx, tn); told || err != nil {
		return err
	}
	rec, ok, err := wf.menu.replied(ctx, tn, "info")
	if !ok {
		return err
	}
	if err := wf.menu.post(ctx, tn, rec, wf.menu.about(ctx, tn, rec)); err != nil {
		return err
	}
	return wf.send(ctx, tn, rec)
}

// gpuName returns what people call a GPU that ComfyUI calls "cuda:0 NVIDIA L4 :
// cudaMallocAsync".
func gpuName(gpu string) string {
	gpu, _, _ = strings.Cut(gpu, " : ")
	if device, name, ok := strings.Cut(gpu, " "); ok && strings.Contains(device, ":") {
		return name
	}
	return gpu
}

// pressed sends the workflow of a picture.
func (wf *workflows) pressed(ctx context.Context, tn *turn, rec request.Record) error {
	tn.answer(ctx, "on_it")
	return wf.send(ctx, tn, rec)
}

// send sends the graph of a picture as a file in API format: the hub's copy, or
// else the command's graph with the same values.
func (wf *workflows) send(ctx context.Context, tn *turn, rec request.Record) error {
	asking, cancel := context.WithTimeout(ctx, infoTimeout)
	graph, err := wf.hub.Graph(asking, rec.Tenant(), rec.Prompt)
	cancel()
	if err != nil {
		if !errors.Is(err, hubapi.ErrNotFound) {
			wf.logger.Debug("the hub does not give the graph of a request", "request", rec.ID, "error", err)
		}
		c := wf.commands.byName[rec.Command]
		if c == nil {
			return tn.reply(ctx, tn.say("no_workflow", nil))
		}
		graph = c.Fill(rec.Args, rec.Files())
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, graph, "", "  ") == nil {
		graph = pretty.Bytes()
	}
	if limits := tn.p.Limits(); limits.Linked {
		// There, files are links, and this one is nowhere to link to.
		text := string(graph)
		if len(text) > limits.Text {
			text = tn.say("no_workflow", nil)
		}
		return wf.menu.post(ctx, tn, rec, platform.Post{Text: text, ReplyTo: tn.under, Private: true, Press: tn.Press})
	}
	return wf.menu.post(ctx, tn, rec, platform.Post{
		Text: tn.say("workflow_file", nil), ReplyTo: tn.under, Private: true, Press: tn.Press,
		Files: []platform.Attachment{{
			Name: rec.Command + ".json", Media: platform.Document, Size: int64(len(graph)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(graph)), nil },
		}},
	})
}
