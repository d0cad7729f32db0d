package conversation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// progress says how the requests of a user are getting on, and cancels them.
type progress struct {
	store     *state.Store
	hub       *hubapi.Client
	runner    *request.Runner
	guard     *limits.Guard
	texts     *locale.Bundle
	find      *finder
	questions *questions
}

// queue lists the user's waiting requests.
func (pr *progress) queue(ctx context.Context, tn *turn) error {
	active, err := pr.find.active(ctx, tn)
	if err != nil {
		return err
	}
	if len(active) == 0 {
		return tn.reply(ctx, tn.say("queue_empty", nil))
	}
	var lines []string
	for i, rec := range active {
		words, _ := pr.runner.Words(rec.ID)
		lines = append(lines, fmt.Sprintf("%d. /%s %s\n%s", i+1, rec.Command, short(rec.Args.Prompt), words))
	}
	return tn.replyLong(ctx, strings.Join(lines, "\n"))
}

func short(text string) string { return platform.Clip(text, 60) }

// status shows the state of the fleet.
func (pr *progress) status(ctx context.Context, tn *turn) error {
	stats, err := pr.hub.Stats(ctx)
	if err != nil {
		return tn.reply(ctx, tn.say("hub_away_now", nil))
	}
	ready := stats.Instances["idle"] + stats.Instances["busy"]
	text := tn.say("fleet", locale.With{
		"ready": ready, "idle": stats.Instances["idle"], "running": stats.Running, "queued": stats.Queued,
	})
	share, _, err := pr.guard.Share(ctx, tn.Event)
	if err != nil {
		return err
	}
	if share > 0 {
		spent, err := pr.store.Usage.Spent(ctx, tn.who())
		if err != nil {
			return err
		}
		text += "\n" + tn.say("share", locale.With{"spent": spent, "share": share})
	}
	here, err := pr.capText(ctx, tn)
	if err != nil {
		return err
	}
	return tn.reply(ctx, text+here)
}

// cancel ends the open question, or else the request whose message is replied to, or else
// the newest one; with "all", all of them.
func (pr *progress) cancel(ctx context.Context, tn *turn) error {
	if tn.rest == "" && tn.Message.ReplyTo == nil {
		if done, err := pr.questions.cancel(ctx, tn); done || err != nil {
			return err
		}
	}
	active, err := pr.find.active(ctx, tn)
	if err != nil {
		return err
	}
	id, err := pr.find.replied(ctx, tn)
	if err != nil {
		return err
	}
	switch {
	case id != "":
		active = slices.DeleteFunc(active, func(rec request.Record) bool { return rec.ID != id })
	case tn.rest != "all" && len(active) > 0:
		active = active[len(active)-1:]
	}
	count := 0
	for _, rec := range active {
		if pr.runner.Cancel(rec.ID) {
			count++
		}
	}
	if count == 0 {
		return tn.reply(ctx, tn.say("nothing_to_cancel", nil))
	}
	return tn.reply(ctx, tn.say("cancelling_n", locale.With{"n": count}))
}

// why says what the user's requests are waiting for.
func (pr *progress) why(ctx context.Context, tn *turn) error {
	active, err := pr.find.active(ctx, tn)
	if err != nil {
		return err
	}
	if len(active) == 0 {
		return tn.reply(ctx, tn.say("queue_empty", nil))
	}
	const most = 5
	var lines []string
	for _, rec := range active[:min(most, len(active))] {
		lines = append(lines, fmt.Sprintf("/%s %s\n%s", rec.Command, short(rec.Args.Prompt), pr.reason(ctx, tn, rec)))
	}
	return tn.reply(ctx, strings.Join(lines, "\n"))
}

func (pr *progress) reason(ctx context.Context, tn *turn, rec request.Record) string {
	e, err := pr.hub.Explain(ctx, rec.Tenant(), rec.Prompt)
	switch {
	case errors.Is(err, hubapi.ErrNotFound):
		// It is not at the hub yet, or the hub cannot explain: repeat what its message
		// says.
		if words, ok := pr.runner.Words(rec.ID); ok {
			return words
		}
		return tn.say("accepted", nil)
	case err != nil:
		return tn.say("hub_away_now", nil)
	case e.State == "running":
		return tn.say("why_running", locale.With{"attempt": e.Attempts})
	case e.Position == nil:
		return tn.say("why_over", nil)
	}
	text, stuck := request.Why(pr.texts, tn.language, e)
	if stuck {
		return text
	}
	return request.PlaceText(pr.texts, tn.language, *e.Position, 0) + "\n" + text
}
