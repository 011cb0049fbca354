import tensorflow as tf

def load(path):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.image.resize(image, [224, 224]) / 255.0
    label = tf.strings.to_number(tf.strings.substr(path, -5, 1), tf.int32)
    return image, label

files = tf.data.Dataset.list_files("/tmp/images/*.jpg", shuffle=True, seed=1)
dataset = files.map(load).batch(64, drop_remainder=True)

model = tf.keras.Sequential([
    tf.keras.layers.Input((224, 224, 3)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1024, activation="relu"),
    tf.keras.layers.Dense(1024, activation="relu"),
    tf.keras.layers.Dense(10),
])
model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(dataset, epochs=2, verbose=2)
