package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"sync"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
)

// ada is the scripted person.
const ada = 1001

// play is the script.
func play(ctx context.Context, s *stage.Stage, c *scene) error {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.watch(watching, s.Fake, c.person) })
	for _, part := range []func(*scene){playWords, playGrid, playMenu, playPhotos, playStars} {
		part(c)
	}
	stop()
	watch.Wait()
	if c.err != nil {
		return c.err
	}
	if over, worst := s.Fake.TooFast(); over > 0 {
		return fmt.Errorf("%d calls broke Telegram's limits (%+v)", over, worst)
	}
	fmt.Println("\nEverything worked: pictures from words and from photos, four in one, new words and styles, a question,\n" +
		"a request stopped, a picture found again, a video paid for, and a payment refunded.\n" +
		"The bridge stayed within Telegram's limits.")
	return nil
}

// playWords asks for a picture in plain words, makes another one, and stops a third.
func playWords(c *scene) {
	asked := c.say(c.in("a lighthouse on a cliff at dawn --ar 3:2", "маяк на скале на рассвете --ar 3:2"))
	c.press(c.sees("the terms", offers(c.in("I accept", "Принимаю"))), c.in("I accept", "Принимаю"))
	c.sees("progress", says("%"))
	picture := c.sees("the picture", shows(asked))
	c.press(picture, c.in("Again", "Ещё раз"))
	c.sees("the second picture", func(m fakebot.Message) bool { return shows(asked)(m) && m.ID != picture.ID })

	asked = c.say(c.in("/generate a very slow snail --steps 60", "/generate очень медленная улитка --steps 60"))
	status := c.sees("the request to be stopped", func(m fakebot.Message) bool {
		return m.ReplyTo == asked && offers(c.in("Cancel", "Отменить"))(m)
	})
	c.press(status, c.in("Cancel", "Отменить"))
	c.sees("the end of that request", func(m fakebot.Message) bool {
		return m.ID == status.ID && m.Text == c.in("Stopped.", "Остановлено.")
	})
}

// playGrid asks what a command takes, makes a mistake, and chooses one of four pictures.
func playGrid(c *scene) {
	c.say("/help generate")
	c.sees("what the command takes", says("--sampler: "))
	c.say(c.in("/generate a harbour at night --cfg 400", "/generate гавань ночью --cfg 400"))
	c.sees("the range of an argument", says(c.in("--cfg can be from 0 to 100", "--cfg — от 0 до 100")))
	asked := c.say(c.in("/generate a harbour at night -n 4 --cfg 4 --sampler DPMPP-2M", "/generate гавань ночью -n 4 --cfg 4 --sampler DPMPP-2M"))
	sheet := c.sees("four pictures as one", func(m fakebot.Message) bool { return shows(asked)(m) && offers("U2")(m) })
	c.press(sheet, "U2")
	c.sees("the second picture, large", func(m fakebot.Message) bool { return shows(asked)(m) && m.ID != sheet.ID })
}

// playMenu asks what made a picture, and for other looks and words.
func playMenu(c *scene) {
	asked := c.say(c.in("a fox in the snow --seed 7", "лиса в снегу --seed 7"))
	picture := c.sees("the fox", shows(asked))
	c.press(picture, c.in("More", "Подробнее"))
	menu := c.sees("what made it", func(m fakebot.Message) bool {
		return m.ReplyTo == picture.ID && says(c.in("Took ", "Заняло "))(m)
	})
	c.press(menu, c.in("Favourite", "избранное"))
	c.press(menu, c.in("Style", "Стиль"))
	c.press(c.sees("the styles", func(m fakebot.Message) bool { return m.ID == menu.ID && offers("ink")(m) }), "ink")
	c.sees("the fox in ink", func(m fakebot.Message) bool {
		return shows(asked)(m) && says(c.in("ink · Seed 7", "ink · Сид 7"))(m)
	})
	words := c.send(fakebot.Draft{Text: c.in("/remix an owl in the snow", "/remix сова в снегу"), ReplyTo: picture.ID})
	c.sees("an owl instead", shows(words))
}

// playPhotos sends photos with and without words, answers to a picture, and finds one again.
func playPhotos(c *scene) {
	asked := c.send(fakebot.Draft{Text: c.in("in autumn", "осенью"), Photo: photo()})
	picture := c.sees("the photo in autumn", shows(asked))
	asked = c.send(fakebot.Draft{Text: c.in("in winter", "зимой"), ReplyTo: picture.ID})
	c.sees("the same in winter", shows(asked))

	c.say(c.in("/edit in spring", "/edit весной"))
	c.sees("a question", says(c.in("needs a picture", "нужна картинка")))
	asked = c.send(fakebot.Draft{Photo: photo()})
	c.sees("the photo in spring", shows(asked))

	c.say(c.in("/my owl", "/my сова"))
	found := c.sees("the list", func(m fakebot.Message) bool {
		return says(c.in("an owl in the snow", "сова в снегу"))(m) && offers("1")(m) && m.Kind == "text"
	})
	c.press(found, "1")
	c.sees("the owl again", func(m fakebot.Message) bool { return m.Kind == "photo" && m.ID > found.ID })
}

// playStars pays for a video, and stops another one.
func playStars(c *scene) {
	asked := c.say(c.in("/clip waves on a beach", "/clip волны на берегу"))
	c.pay(c.sees("an invoice", invoices(asked)))
	c.sees("the video", func(m fakebot.Message) bool { return m.Kind == "video" && m.ReplyTo == asked })

	asked = c.say(c.in("/clip waves in a storm", "/clip волны в шторм"))
	c.pay(c.sees("another invoice", invoices(asked)))
	c.press(c.sees("the paid request", func(m fakebot.Message) bool {
		return m.ReplyTo == asked && offers(c.in("Cancel", "Отменить"))(m)
	}), c.in("Cancel", "Отменить"))
	c.sees("the money back", says(c.in("25 Stars back", "25 звёзд")))
}

// photo is a picture of a meadow below the sky.
func photo() []byte {
	const width, height = 96, 64
	meadow := image.NewRGBA(image.Rect(0, 0, width, height))
	draw.Draw(meadow, meadow.Bounds(), image.NewUniform(color.RGBA{0x87, 0xce, 0xeb, 0xff}), image.Point{}, draw.Src)
	draw.Draw(meadow, image.Rect(0, height/2, width, height), image.NewUniform(color.RGBA{0x55, 0x99, 0x44, 0xff}), image.Point{}, draw.Src)
	var data bytes.Buffer
	if err := png.Encode(&data, meadow); err != nil {
		panic(err) // a picture in memory can be encoded
	}
	return data.Bytes()
}
