package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// verbForget is the verb of the button that confirms /forget me.
const verbForget = "fg"

// exportedCharges is how many payments are exported: all that are listed.
const exportedCharges = 200

// settingsKind is the kind of what users have chosen.
const settingsKind = "settings"

// personal is what the bridge keeps about a user. Each field is as it is stored.
type personal struct {
	Who      string          `json:"who"`
	At       time.Time       `json:"at"`
	Settings json.RawMessage `json:"settings,omitempty"`
	// Terms is the version that the user has accepted, Share a daily share of their own.
	Terms json.RawMessage `json:"terms,omitempty"`
	Share json.RawMessage `json:"share,omitempty"`
	// Spent is how much of the share was used today.
	Spent int64 `json:"spent_today"`
	// SpentIn is how much of that was in groups.
	SpentIn map[string]int64 `json:"spent_today_in_groups,omitempty"`
	// Payments are the last ones.
	Payments []state.Charge `json:"payments,omitempty"`
	// Waiting are requests and questions that wait for the user, and lists of pictures whose
	// pages can be turned.
	Waiting    map[string]json.RawMessage `json:"waiting,omitempty"`
	Favourites []state.Star               `json:"favourites,omitempty"`
	// Requests are without their graphs, which are the operator's. LeftOut are those that
	// did not fit into the file.
	Requests []request.Record `json:"requests,omitempty"`
	LeftOut  int              `json:"requests_left_out,omitempty"`
}

// export answers /export: all that is kept about a user, as a file.
func (t *Talk) export(ctx context.Context, tn *turn) error {
	if tn.Chat.Group {
		return t.reply(ctx, tn, t.say(tn, "export_private", nil))
	}
	p, err := t.personal(ctx, tn.who())
	if err != nil {
		return err
	}
	doc, err := p.fit(tn.p.Limits().File)
	if err != nil {
		return err
	}
	text := t.say(tn, "export_done", locale.With{"n": len(p.Requests)})
	if tn.p.Limits().Linked {
		// What exists only here cannot be a file there.
		return t.replyLong(ctx, tn, text+"\n\n"+string(doc))
	}
	return t.post(ctx, tn, platform.Post{
		Text: text, ReplyTo: tn.Message.ID, Private: true, Files: []platform.Attachment{{
			Name: "export.json", Media: platform.Document, Size: int64(len(doc)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(doc)), nil },
		}},
	})
}

// fit writes what is kept as JSON of a size in bytes at most, 0 for any. The oldest
// requests are left out if they do not fit.
func (p *personal) fit(most int64) ([]byte, error) {
	for {
		doc, err := json.MarshalIndent(p, "", "  ")
		if err != nil || most == 0 || int64(len(doc)) <= most || len(p.Requests) == 0 {
			return doc, err
		}
		half := (len(p.Requests) + 1) / 2
		p.Requests, p.LeftOut = p.Requests[half:], p.LeftOut+half
	}
}

// personal collects what is kept about a user.
func (t *Talk) personal(ctx context.Context, who string) (*personal, error) {
	p := &personal{Who: who, At: time.Now().UTC()}
	for kind, into := range map[string]*json.RawMessage{settingsKind: &p.Settings, termsKind: &p.Terms, "share": &p.Share} {
		if err := t.o.Store.Get(ctx, kind, who, into); err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, err
		}
	}
	var err error
	if p.Spent, err = t.o.Store.Spent(ctx, who); err != nil {
		return nil, err
	}
	if p.SpentIn, err = t.o.Store.SpentIn(ctx, who); err != nil {
		return nil, err
	}
	if p.Waiting, err = t.o.Store.HeldOf(ctx, who); err != nil {
		return nil, err
	}
	if p.Payments, err = t.o.Store.ChargesOf(ctx, who, exportedCharges); err != nil {
		return nil, err
	}
	if p.Favourites, err = t.o.Store.Stars(ctx, who, ""); err != nil {
		return nil, err
	}
	p.Requests, err = t.requestsOf(ctx, who, p.Favourites)
	for i := range p.Requests {
		p.Requests[i].Graph = nil
	}
	return p, err
}

// requestsOf returns a user's requests, the oldest first: also those that only their
// favourites keep.
func (t *Talk) requestsOf(ctx context.Context, who string, stars []state.Star) (list []request.Record, err error) {
	ids, err := t.o.Store.Own(ctx, who)
	if err != nil {
		return nil, err
	}
	for _, star := range stars {
		ids = append(ids, star.Request)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		rec, err := t.o.Runner.Load(ctx, id)
		switch {
		case errors.Is(err, state.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		if rec.Tenant() == who {
			list = append(list, rec)
		}
	}
	return list, nil
}

// forget answers /forget me: asks whether that is meant.
func (t *Talk) forget(ctx context.Context, tn *turn) error {
	switch {
	case tn.Chat.Group:
		return t.reply(ctx, tn, t.say(tn, "forget_private", nil))
	case tn.rest != "me":
		return t.reply(ctx, tn, t.say(tn, "forget_usage", nil))
	}
	return t.post(ctx, tn, platform.Post{
		Text: t.say(tn, "forget_ask", nil), ReplyTo: tn.Message.ID, Private: true,
		Buttons: request.Buttons(t.o.Texts, tn.language, forgetID(tn), verbForget),
	})
}

// forgetID is what the button of one user carries.
func forgetID(tn *turn) string { return request.IDOf("forget/" + tn.who()) }

// pressedForget forgets a user. It may be repeated: what is forgotten stays so. Bans, the
// user's own share and what was used of it today remain: otherwise forgetting would be a
// way around them.
func (t *Talk) pressedForget(ctx context.Context, tn *turn, id string) error {
	if id != forgetID(tn) {
		t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, "not_yours", nil))
		return nil
	}
	who := tn.who()
	stars, err := t.o.Store.Stars(ctx, who, "")
	if err != nil {
		return err
	}
	requests, err := t.requestsOf(ctx, who, stars)
	if err != nil {
		return err
	}
	for _, star := range stars {
		if _, err := t.o.Store.Toggle(ctx, who, tn.Key()+"/"+star.ID(), star); err != nil {
			return err
		}
	}
	kept := 0
	for _, rec := range requests {
		gone, err := t.o.Store.Forget(ctx, rec.ID)
		if err != nil {
			return err
		}
		if !gone {
			kept++
			continue
		}
		for _, message := range []string{rec.Message, rec.Status} {
			name := request.MessageName(rec.Platform, rec.Chat.ID, message)
			if err := t.o.Store.Put(ctx, request.MessageKind, name, nil, 0); err != nil {
				return err
			}
		}
	}
	if err := t.o.Store.PartWith(ctx, who, settingsKind, termsKind); err != nil {
		return err
	}
	if err := t.left(ctx, ChatKey(tn.Platform, tn.Chat)); err != nil {
		return err
	}
	text := t.say(tn, "forget_done", locale.With{"n": len(requests) - kept})
	if kept > 0 {
		text += "\n" + t.say(tn, "forget_running", locale.With{"n": kept})
	}
	text += "\n" + t.say(tn, "forget_rest", nil)
	if charges, err := t.o.Store.ChargesOf(ctx, who, 1); err != nil {
		return err
	} else if len(charges) > 0 {
		text += "\n" + t.say(tn, "forget_paid", nil)
	}
	t.o.Outbox.Answer(ctx, tn.p, tn.Press, "")
	if err := t.o.Outbox.Edit(ctx, tn.p, tn.Chat, tn.Message.ID, platform.Post{Text: text}); mayPass(err) {
		return err
	}
	return nil
}
