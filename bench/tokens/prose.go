package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// documentBytes is the size of a document.
const documentBytes = 64 << 10

// documents returns n documents of a kind. They are our own text: code is that of
// the repository at root, English a chain of words from its comments and pages,
// Chinese a chain of words from [chineseWords].
func documents(root, kind string, n int) ([]string, error) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
	var text []byte
	switch kind {
	case "code", "english":
		code, pages, err := sources(root)
		if err != nil {
			return nil, err
		}
		if text = code; kind == "english" {
			text = newChain(proseOf(code, pages)).write(random, n*documentBytes)
		}
	case "chinese":
		text = writeChinese(random, n*documentBytes)
	default:
		return nil, fmt.Errorf("documents: no kind %q", kind)
	}
	return cut(string(text), n), nil
}

// cut returns n documents of whole lines, spread over text.
func cut(text string, n int) []string {
	var all []string
	for i := range n {
		at := (len(text) - documentBytes) / n * i
		at += strings.IndexByte(text[at:], '\n') + 1
		document := text[at:min(at+documentBytes, len(text))]
		all = append(all, document[:strings.LastIndexByte(document, '\n')+1])
	}
	return all
}

// sources returns the repository's code, but for generated tables, and its pages,
// in the order of their names.
func sources(root string) (code, pages []byte, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name()[0] == '.' || d.Name() == "testdata" || d.Name() == "build" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		into := &pages
		switch filepath.Ext(path) {
		case ".go":
			into = &code
		case ".md":
		default:
			return nil
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if head, _, _ := bytes.Cut(file, []byte("package ")); !bytes.Contains(head, []byte("DO NOT EDIT")) {
			*into = append(*into, file...)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("sources: %w", err)
	}
	return code, pages, nil
}

// proseOf returns the words of the comments in code, and of pages, with their
// punctuation. What is no word, such as a name in mixed case, is left out.
func proseOf(code, pages []byte) []string {
	var words []string
	add := func(line string) {
		for word := range strings.FieldsSeq(line) {
			if isWord(word) {
				words = append(words, word)
			}
		}
	}
	for line := range strings.Lines(string(code)) {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "// "); ok {
			add(comment)
		}
	}
	for line := range strings.Lines(string(pages)) {
		if !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "```") {
			add(line)
		}
	}
	return words
}

func isWord(word string) bool {
	word = strings.TrimRight(word, ".,;:?!")
	for i, r := range word {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && (i == 0 || r != '-' && r != '\'') || i > 0 && unicode.IsUpper(r) {
			return false
		}
	}
	return word != ""
}

// chain writes text in which each word is as likely to follow another as it is
// in the words that it was made of.
type chain struct {
	words []string
	after map[string][]int // where the words behind a word are
}

func newChain(words []string) *chain {
	c := &chain{words, map[string][]int{}}
	for i, word := range words[:len(words)-1] {
		c.after[word] = append(c.after[word], i+1)
	}
	return c
}

// write writes so many bytes, in paragraphs.
func (c *chain) write(random *rand.Rand, size int) []byte {
	var text []byte
	word := c.words[0]
	for len(text) < size {
		text = append(text, word...)
		switch end := strings.ContainsAny(word[len(word)-1:], ".?!"); {
		case end && random.IntN(5) == 0:
			text = append(text, "\n\n"...)
		default:
			text = append(text, ' ')
		}
		next := c.after[word]
		if len(next) == 0 {
			word = c.words[random.IntN(len(c.words))]
			continue
		}
		word = c.words[next[random.IntN(len(next))]]
	}
	return append(text, '\n')
}

// chineseWords are common words, about in the order of how often they come.
var chineseWords = strings.Fields(`
的 是 在 了 我们 和 有 不 这个 一个 可以 也 就 都 要 会 对 上 他们 到 说 你 很 人 时候 没有 把 从 用 还 因为 所以
如果 但是 这些 那个 什么 怎么 已经 需要 问题 时间 系统 数据 请求 服务 工作 使用 通过 进行 方法 结果 情况 模型 文件 代码 用户
信息 内容 程序 缓存 内存 速度 请 写 看 想 做 给 让 被 比 与 或者 以及 并且 然后 首先 最后 其中 之后 之前 同时 每个 所有 一些 许多
开始 结束 出现 发现 认为 知道 希望 决定 选择 增加 减少 提高 降低 改变 保持 检查 运行 处理 返回 发送 接收 读取 保存 删除 更新 计算 比较 测试 分析
设计 实现 支持 提供 包括 影响 解决 解释 说明 描述 记录 管理 控制 连接 等待 失败 成功 错误 正确 重要 主要 不同 相同 简单 复杂 新的 旧的 大 小 多 少 快 慢 高 低 长 短 好 早
公司 学校 城市 国家 社会 经济 市场 产品 技术 科学 研究 教育 历史 文化 语言 音乐 电影 新闻 天气 春天 夏天 秋天 冬天 早上 晚上 今天 明天 昨天 去年 今年
孩子 老师 学生 医生 朋友 家庭 父亲 母亲 邻居 客人 工人 农民 司机 厨师 作者 读者 声音 颜色 形状 大小 重量 温度 距离 价格 数量 质量 原因 目的 条件 关系 部分 过程 方向 范围 标准 规则 计划 任务 机会 经验 能力 责任
节点 网络 接口 参数 函数 变量 线程 进程 队列 日志 配置 版本 平台 框架 算法 结构 对象 类型 字符 字节 文本 表格 图片 页面 按钮 窗口 屏幕 键盘 地址 域名 端口 协议 消息 事件 状态 统计 平均 最大 最小 总数 比例
山 河 海 湖 树 花 草 鸟 鱼 马 牛 羊 狗 猫 雨 雪 风 云 太阳 月亮 星星 石头 沙子 木头 金属 玻璃 纸 布 米饭 面条 茶 咖啡 水果 蔬菜 牛奶 鸡蛋 糖 盐 油
道路 桥梁 车站 机场 港口 船 火车 汽车 自行车 房子 门 窗户 桌子 椅子 床 灯 钟 书 笔 信 包 衣服 鞋子 帽子 伞 钥匙
走 跑 飞 游 坐 站 躺 吃 喝 睡 听 读 学 教 买 卖 借 还给 打开 关上 拿 放 送 带 找 等 帮助 谢谢 欢迎 相信 怀疑 担心 害怕 喜欢 讨厌 记得 忘记 明白 同意 反对 讨论 争论 批评 表扬
安静 热闹 干净 安全 危险 健康 年轻 聪明 努力 认真 耐心 诚实 勇敢 温柔 漂亮 奇怪 有趣 无聊 明显 清楚 模糊 稳定 突然 逐渐 立刻 马上 经常 偶尔 总是 几乎 大约 至少 甚至 尤其 终于 仍然 反而 究竟 到底
`)

// writeChinese writes so many bytes by Simon's process, which makes the words of a
// text as unequal in number as those of natural text are: now and then a new word
// comes, coined of the characters of the others, and else one of those that the
// text has, the likelier the more often it has it.
func writeChinese(random *rand.Rand, size int) []byte {
	const coined = 0.02
	characters := []rune(strings.Join(chineseWords, ""))
	// A word that stands at rank r comes as often as 1/r.
	var said []string
	for i, word := range chineseWords {
		for range 1 + len(chineseWords)/(i+1) {
			said = append(said, word)
		}
	}
	text := make([]byte, 0, size+64)
	for len(text) < size {
		for clauses := 1 + random.IntN(4); clauses > 0; clauses-- {
			for words := 3 + random.IntN(6); words > 0; words-- {
				word := said[random.IntN(len(said))]
				if random.Float64() < coined {
					word = coin(random, characters)
				}
				said = append(said, word)
				text = append(text, word...)
			}
			switch {
			case random.IntN(40) == 0:
				text = fmt.Appendf(text, "%d年", 1900+random.IntN(130))
			case random.IntN(40) == 0:
				text = append(text, " API "...)
			}
			if clauses > 1 {
				text = append(text, "，"...)
			}
		}
		text = append(text, [...]string{"。", "。", "。", "。", "？", "！", "；", "。\n"}[random.IntN(8)]...)
	}
	return append(text, '\n')
}

// coin makes a word of two or three characters, of which one in ten is rare.
func coin(random *rand.Rand, characters []rune) string {
	var word strings.Builder
	for range 2 + random.IntN(2) {
		if random.IntN(10) == 0 {
			const first, last = 0x4e00, 0x9fa5
			word.WriteRune(first + random.Int32N(last-first+1))
			continue
		}
		word.WriteRune(characters[random.IntN(len(characters))])
	}
	return word.String()
}
