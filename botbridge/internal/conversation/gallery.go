package conversation

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	// verbMy turns the pages of a list; its data is the list's id and "p2" or "s2": the
	// page, of all pictures or of favourites (stars). verbGet sends pictures of a request
	// again; its data is the request and a number from 1, 0 for all.
	verbMy  = "my"
	verbGet = "mg"

	// myKind is where older bridges store lists.
	myKind = "my"
	// myPage is how many pictures are on a page.
	myPage = 5
	// myLook bounds how many requests are searched, myMost how many are listed.
	myLook = 500
	myMost = 100
	// myWords bounds the length of a search, in characters.
	myWords = 100
)

// view is a list that a user has asked for; its pages can be turned for a day.
type view struct {
	Who    string `json:"who"`
	Search string `json:"search,omitempty"`
}

// mine is a line of a list.
type mine struct {
	request string
	number  int // from 1, 0 for all pictures
	text    string
}

// gallery shows users their own pictures and favourites.
type gallery struct {
	store  *state.Store
	runner *request.Runner
}

// my answers /my, a user's last pictures, and /my WORDS, those whose command or prompt
// contains the words.
func (gy *gallery) my(ctx context.Context, tn *turn) error {
	v := view{Who: tn.who(), Search: tn.rest}
	if runes := []rune(v.Search); len(runes) > myWords {
		v.Search = string(runes[:myWords])
	}
	// The same list has the same id, so that it counts only once against what is held for a
	// user.
	id := request.IDOf("my/" + v.Who + "/" + v.Search)
	if err := gy.store.People.Hold(ctx, v.Who, id, v); err != nil {
		return err
	}
	post, err := gy.page(ctx, tn, v, id, false, 1)
	if err != nil {
		return err
	}
	post.ReplyTo, post.Private = tn.Message.ID, true
	return tn.post(ctx, post)
}

// pressedMy turns a page.
func (gy *gallery) pressedMy(ctx context.Context, tn *turn, data string) error {
	id, at, _ := strings.Cut(data, ":")
	page, _ := strconv.Atoi(at[min(1, len(at)):])
	var v view
	err := gy.store.People.Held(ctx, id, &v)
	if errors.Is(err, state.ErrNotFound) {
		err = gy.store.Get(ctx, myKind, id, &v)
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	switch {
	case err != nil, page < 1, at[0] != 'p' && at[0] != 's':
		tn.answer(ctx, "too_old")
		return nil
	case v.Who != tn.who():
		tn.answer(ctx, "not_yours")
		return nil
	}
	post, err := gy.page(ctx, tn, v, id, at[0] == 's', page)
	if err != nil {
		return err
	}
	tn.answerText(ctx, "")
	return tn.edit(ctx, tn.Message.ID, post)
}

// page returns a page of a list.
func (gy *gallery) page(ctx context.Context, tn *turn, v view, id string, stars bool, page int) (platform.Post, error) {
	find, kind, head, other := gy.last, "p", "my_head", "s"
	if stars {
		find, kind, head, other = gy.stars, "s", "my_stars", "p"
	}
	list, err := find(ctx, tn, v.Search)
	if err != nil {
		return platform.Post{}, err
	}
	pages := max(1, (len(list)+myPage-1)/myPage)
	page = min(page, pages)
	if v.Search != "" {
		head = "my_found"
	}
	lines := []string{tn.say(head, locale.With{"words": v.Search}), ""}
	if pages > 1 {
		lines[0] += " " + tn.say("my_page", locale.With{"page": page, "pages": pages})
	}
	var numbers, turns []platform.Button
	for i, m := range list[(page-1)*myPage : min(page*myPage, len(list))] {
		label := strconv.Itoa((page-1)*myPage + i + 1)
		lines = append(lines, label+". "+m.text)
		numbers = append(numbers, platform.Button{Label: label, Data: fmt.Sprintf("%s:%s:%d", verbGet, m.request, m.number)})
	}
	if len(list) == 0 {
		key := "my_none"
		if v.Search != "" {
			key = "my_unfound"
		}
		lines = []string{tn.say(key, locale.With{"words": v.Search})}
	}
	turn := func(label, kind string, page int) platform.Button {
		return platform.Button{Label: label, Data: fmt.Sprintf("%s:%s:%s%d", verbMy, id, kind, page)}
	}
	if page > 1 {
		turns = append(turns, turn("◀", kind, page-1))
	}
	turns = append(turns, turn(tn.say("button_my_"+other, nil), other, 1))
	if page < pages {
		turns = append(turns, turn("▶", kind, page+1))
	}
	post := platform.Post{Text: strings.Join(lines, "\n")}
	if len(numbers) > 0 {
		post.Buttons = append(post.Buttons, numbers)
	}
	post.Buttons = append(post.Buttons, turns)
	return post, nil
}

// last lists the last pictures of a user, the newest first.
func (gy *gallery) last(ctx context.Context, tn *turn, search string) (list []mine, err error) {
	ids, err := gy.store.Requests.Own(ctx, tn.who())
	if err != nil {
		return nil, err
	}
	slices.Reverse(ids)
	search = strings.ToLower(search)
	for _, id := range ids[:min(myLook, len(ids))] {
		rec, err := gy.runner.Load(ctx, id)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !showsIn(tn, rec) || !strings.Contains(strings.ToLower(rec.Command+" "+rec.Words()), search) {
			continue
		}
		text := fmt.Sprintf("/%s %s", rec.Command, short(rec.Words()))
		if n := len(rec.Outputs); n > 1 {
			text += fmt.Sprintf(" ×%d", n)
		}
		if list = append(list, mine{request: id, text: strings.TrimSpace(text) + " · " + rec.Asked.UTC().Format(tn.say("my_day", nil))}); len(list) == myMost {
			break
		}
	}
	return list, nil
}

// stars lists a user's favourites, the newest first.
func (gy *gallery) stars(ctx context.Context, tn *turn, search string) (list []mine, err error) {
	stars, err := gy.store.People.Stars(ctx, tn.who(), search)
	if err != nil {
		return nil, err
	}
	for _, star := range stars {
		if tn.Chat.Group && star.Chat != tn.Chat.ID {
			continue
		}
		text := strings.TrimSpace(fmt.Sprintf("★ /%s %s", star.Command, short(star.Words)))
		if list = append(list, mine{request: star.Request, number: star.Picture + 1, text: text}); len(list) == myMost {
			break
		}
	}
	return list, nil
}

// showsIn reports whether a request has files that may be shown in the chat of a turn: in a
// group only its own, because others can read it.
func showsIn(tn *turn, rec request.Record) bool {
	return rec.Phase == request.Over && rec.Outcome == request.Done && rec.Platform == tn.Platform && (!tn.Chat.Group || rec.Chat.ID == tn.Chat.ID) &&
		slices.ContainsFunc(rec.Outputs, func(out request.Output) bool { return path.Ext(out.Ref.Filename) != "" })
}

// pressedGet sends pictures again to their author, or to a user who has them as favourites.
// The data may be forged.
func (gy *gallery) pressedGet(ctx context.Context, tn *turn, data string) error {
	id, at, _ := strings.Cut(data, ":")
	number, err := strconv.Atoi(at)
	refuse := func(key string) error {
		tn.answer(ctx, key)
		return nil
	}
	if err != nil || len(id) != len(request.IDOf("")) {
		return refuse("too_old")
	}
	rec, err := gy.runner.Load(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound), err == nil && (!showsIn(tn, rec) || number < 0 || number > len(rec.Outputs)):
		return refuse("too_old")
	case err != nil:
		return err
	}
	if rec.Tenant() != tn.who() {
		stars, err := gy.store.People.Stars(ctx, tn.who(), "")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(stars, func(s state.Star) bool { return s.Request == id && s.Picture == number-1 }) {
			return refuse("not_yours")
		}
	}
	outputs := []int{number - 1}
	if number == 0 {
		outputs = nil
		for i := range rec.Outputs {
			outputs = append(outputs, i)
		}
	}
	tn.answerText(ctx, "")
	return tn.resent(ctx, gy.runner.SendTo(ctx, rec, outputs, tn.Chat, platform.Post{ReplyTo: tn.Message.ID, Private: true, Press: tn.Press}))
}

// star adds picture n, from 1, to the favourites of whoever pressed the button, or removes
// it.
func (gy *gallery) star(ctx context.Context, tn *turn, rec request.Record, n int) error {
	out := rec.Outputs[n-1]
	starred, err := gy.store.People.Toggle(ctx, tn.who(), tn.Key(), state.Star{
		Request: rec.ID, Picture: n - 1, Command: rec.Command, Words: rec.Words(), At: time.Now(),
		Chat: rec.Chat.ID, Topic: rec.Chat.Topic, Group: rec.Chat.Group, Message: out.Message,
	})
	if err != nil {
		return err
	}
	key := "star_off"
	if starred {
		key = "star_on"
	}
	tn.answer(ctx, key)
	return nil
}
